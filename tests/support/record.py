"""Records of what passed, so that `make test` repeats it only after a change of what decides it.

Some suites cost minutes and read nothing but files of this repository: as long as none of these
files has changed, their outcome is known. `python -m tests.support.record NAME` writes the record.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

CHECKOUT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Record:
    """A digest of all that decides how tests end, as it was when they last passed.

    Attributes:
        path: the file in which the digest stands.
        sources: patterns of the files that the tests run.
        pins: regular expression of the distributions in requirements.txt that they run.
    """

    path: str
    sources: tuple[str, ...]
    pins: str

    def digest(self, checkout: Path = CHECKOUT) -> str:
        """Of all sources, by name and content, and of the versions of the pins."""
        found = hashlib.sha256()
        for path in sorted(self.files(checkout)):
            found.update(path.relative_to(checkout).as_posix().encode() + b"\0")
            found.update(path.read_bytes() + b"\0")
        pins = re.compile(rf"^(?:{self.pins})==\S+", re.MULTILINE)
        found.update("\n".join(pins.findall((checkout / "requirements.txt").read_text())).encode())
        return found.hexdigest()

    def is_due(self, checkout: Path = CHECKOUT) -> bool:
        """Whether the tests have not passed since the last change."""
        record = checkout / self.path
        return not record.exists() or record.read_text().strip() != self.digest(checkout)

    def write(self, checkout: Path = CHECKOUT) -> None:
        """Note that the tests have passed."""
        (checkout / self.path).write_text(f"{self.digest(checkout)}\n")

    def files(self, checkout: Path = CHECKOUT) -> list[Path]:
        """All files whose content counts."""
        return [path for source in self.sources for path in checkout.glob(source)]


RECORDS: Final = {
    "controls": Record(
        "testbed/localaws/tests/controls.sha256",
        ("testbed/localaws/**/*.py",),
        "ministack",
    ),
    "model": Record(
        "tests/model/searches.sha256",
        (
            "fairlock/*.py",
            "fairlock/durable/*.py",
            "fairlock/aws/*.py",
            "fairlock/protocol/*.py",
            "fairlock/store/*.py",
            "fairlock/testing/__init__.py",
            "fairlock/testing/fake_table.py",
            "fairlock/testing/interpreter.py",
            "fairlock/wire/*.py",
            "tests/model/**/*.py",
            "tests/support/*.py",
        ),
        "moto|boto3|botocore|aws-durable-execution-sdk-python",
    ),
}
"""The controls of the embedded AWS, and the searches of the model with their mutants."""


def leave_out(
    config: pytest.Config,
    items: list[pytest.Item],
    is_known: Callable[[pytest.Item], bool],
    *,
    of: Record,
) -> None:
    """Leave tests out of a run of all suites, unless they are due or were asked for by folder."""
    folder = Path(of.path).parent.as_posix()
    if any(folder in argument for argument in config.args) or of.is_due():
        return
    known = [item for item in items if is_known(item)]
    config.hook.pytest_deselected(items=known)
    items[:] = [item for item in items if item not in known]


if __name__ == "__main__":
    RECORDS[sys.argv[1]].write()
