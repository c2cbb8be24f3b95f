"""When the controls run: whenever the emulator, a correction or a test of them has changed.

A control starts an embedded AWS without one correction, to show what the correction is good for.
As long as nothing of this has changed since `make controls` wrote the record beside this
file, their outcome is known, and `make test` leaves them out.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = "tests/localaws/controls.sha256"
FOLDERS: Final = ("localaws", "tests/localaws")
_PIN: Final = re.compile(r"^ministack==\S+", re.MULTILINE)


def digest(checkout: Path = CHECKOUT) -> str:
    """Of all that decides how the controls end: both folders' programs, and ministack's pin."""
    found = hashlib.sha256()
    for folder in FOLDERS:
        for path in sorted((checkout / folder).rglob("*.py")):
            found.update(path.relative_to(checkout).as_posix().encode() + b"\0")
            found.update(path.read_bytes() + b"\0")
    pins: list[str] = _PIN.findall((checkout / "requirements.txt").read_text())
    found.update("\n".join(pins).encode())
    return found.hexdigest()


def are_due(checkout: Path = CHECKOUT) -> bool:
    """Whether the controls have not passed since the last change."""
    record = checkout / RECORD
    return not record.exists() or record.read_text().strip() != digest(checkout)


if __name__ == "__main__":
    (CHECKOUT / RECORD).write_text(f"{digest()}\n")
