"""Pythons of this machine, and environments that contain nothing of this repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

OLDEST_MINOR: Final = 11
NEWEST_MINOR: Final = 30
"""No Python of this minor version exists yet: the end of the search."""
SECONDS: Final = 300.0
"""Longest time for one command; downloads are the slow ones."""
_LOCAL: Final = re.compile(r"AWS_|FAIRLOCK_|PYTHON|VIRTUAL_ENV|UV_PROJECT|MAKE")


class CheckFailedError(Exception):
    """A command of the check failed; the text has what it printed."""


def run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Runs a command without the variables of this repository's own tools.

    Returns:
        what it printed.

    Raises:
        CheckFailedError: it failed, or took longer than `SECONDS`.
    """
    inherited = {name: value for name, value in os.environ.items() if not _LOCAL.match(name)}
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env={**inherited, **(environment or {})},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        message = f"took longer than {SECONDS:g} s: {' '.join(command)}"
        raise CheckFailedError(message) from late
    if ended.returncode != 0:
        message = f"status {ended.returncode} of {' '.join(command)}\n{ended.stdout}"
        raise CheckFailedError(message)
    return ended.stdout


def oldest_and_newest() -> list[Path]:
    """The interpreters of the oldest and the newest Python here that the package supports.

    One, if there is only one.
    """
    found = {minor: path for minor in range(OLDEST_MINOR, NEWEST_MINOR) if (path := _of(minor))}
    return [found[minor] for minor in sorted({min(found), max(found)})]


def _of(minor: int) -> Path | None:
    return next((path for path in _candidates(minor) if _is_python(path, minor)), None)


def _candidates(minor: int) -> Iterator[Path]:
    """On the path, and where pyenv keeps those that are not switched on."""
    if sys.version_info[:2] == (3, minor):
        yield Path(sys.executable)
    if on_path := shutil.which(f"python3.{minor}"):
        yield Path(on_path)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"), reverse=True)


def _is_python(path: Path, minor: int) -> bool:
    """Whether it runs: a shim of pyenv is on the path for versions that are not switched on."""
    asked = "import sys; print(sys.version_info[:2])"
    try:
        return run([str(path), "-c", asked], cwd=Path("/")) == f"(3, {minor})\n"
    except (CheckFailedError, OSError):
        return False
