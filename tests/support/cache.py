"""What passed on the same files before, kept outside the checkout: `~/.cache/fairlock-tests`.

Some suites cost minutes of a processor and read nothing but files of this repository. As long as
none of these files has changed, their outcome is known. A clean machine has an empty cache, and
runs everything once.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
_OF_CODE: Final = ("examples", "fairlock", "infra", "lambdas", "release", "testbed", "tests")
_OF_THE_PROJECT: Final = ("*.py", "*.toml", "*.json", "*.md")
_GENERATED: Final = {"__pycache__", "node_modules", "cdk.out"}
KEPT: Final = 4_000
"""Entries. Beyond them, the oldest go."""


def files_of_imported_packages() -> list[Path]:
    """Every Python file of this checkout in a folder from which a module has been imported.

    Siblings count as well, because a function may import one of them when it runs.
    """
    loaded = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    folders = {Path(file).resolve().parent for file in loaded if file}
    ours = (folder for folder in folders if _is_ours(folder))
    return [path for folder in ours for path in folder.glob("*.py")]


def digest_of(files: Iterable[Path], checkout: Path = CHECKOUT) -> str:
    """Digest of these files by name and content, of all pins and of the interpreter."""
    found = hashlib.sha256(sys.version.encode())
    for path in (checkout / "requirements.txt", *sorted(files)):
        found.update(path.relative_to(checkout).as_posix().encode() + b"\0")
        found.update(path.read_bytes() + b"\0")
    return found.hexdigest()


def files_of_code(below: str = "") -> list[Path]:
    """What a test of code can read: the files of packages, tests, examples and the project.

    Args:
        below: of the packages only this folder, such as `testbed/localaws/`.
    """
    folders = [below] if below else _OF_CODE
    packages = (path for folder in folders for path in (CHECKOUT / folder).rglob("*"))
    project = (path for kind in _OF_THE_PROJECT for path in CHECKOUT.glob(kind))
    found = itertools.chain(packages, project)
    return [path for path in found if path.is_file() and _GENERATED.isdisjoint(path.parts)]


class Cache:
    """Results by the digest of what decided them and a name."""

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._folder = folder or Path(home) / "fairlock-tests"

    def get(self, digest: str, name: str) -> Any:  # noqa: ANN401 - what was put there
        """The result, or None."""
        try:
            return pickle.loads(self._path(digest, name).read_bytes())  # noqa: S301 - our own
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def put(self, digest: str, name: str, result: object) -> None:
        """Keep a result. A folder that cannot be written is as good as an empty one."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Renamed when it is whole: another process may read it at any moment.
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(pickle.dumps(result))
            Path(file.name).replace(self._path(digest, name))
            self._forget_oldest()
        except OSError:
            return

    def _path(self, digest: str, name: str) -> Path:
        return self._folder / hashlib.sha256(f"{digest}\0{name}".encode()).hexdigest()

    def _forget_oldest(self) -> None:
        entries = [*self._folder.iterdir()]
        if len(entries) > KEPT:
            for path in sorted(entries, key=lambda path: path.stat().st_mtime)[: KEPT // 4]:
                path.unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    return folder.is_relative_to(CHECKOUT) and ".venv" not in folder.relative_to(CHECKOUT).parts
