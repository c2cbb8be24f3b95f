"""`python -m release`: what `make release-check` and the release workflow run.

It publishes nothing. The packages are in `dist` afterwards, the notes of this version in
`out/release-notes.md`. Exit status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from release import checks
from release.environments import CheckFailedError, oldest_and_newest, run

Result = TypeVar("Result")


def main() -> int:
    """Runs the checks one after the other, and says how long each took."""
    parser = argparse.ArgumentParser(prog="python -m release")
    parser.add_argument("--tag", help="the tag to be published, as v0.1.0")
    tag = parser.parse_args().tag
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="fairlock-release-") as home:
            _check(tag, Path(home))
    except CheckFailedError as failed:
        sys.stderr.write(f"release-check: {failed}\n")
        return 1
    sys.stdout.write(f"{time.monotonic() - begin:6.1f} s  all checks passed\n")
    return 0


def _check(tag: str | None, home: Path) -> None:
    project = checks.project()
    version, changelog = project["version"], (checks.ROOT / "CHANGELOG.md").read_text()
    if tag:
        checks.may_be_published(tag, version, project["repository"], changelog)
    notes = checks.ROOT / "out" / "release-notes.md"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text(checks.notes_of(version, changelog)[1] + "\n")
    dist = checks.ROOT / "dist"
    packages = _timed("build sdist and wheel", lambda: checks.build(dist))
    _timed("twine check --strict", lambda: checks.metadata(packages))
    pythons = oldest_and_newest()
    for python in pythons:
        for package in packages:
            place = Path(tempfile.mkdtemp(dir=home))
            what = f"{_version_of(python)}: install and use {package.name}"
            _timed(what, lambda: checks.installs(package, python, place))  # noqa: B023 - called at once
    place = Path(tempfile.mkdtemp(dir=home))
    newest = pythons[-1]
    what = f"{_version_of(newest)}: the commands of examples/app's workflow"
    [wheel] = dist.glob("fairlock-*.whl")
    _timed(what, lambda: checks.app(wheel, newest, place))


def _version_of(python: Path) -> str:
    return run([str(python), "--version"], cwd=Path("/")).strip()


def _timed(what: str, work: Callable[[], Result]) -> Result:
    begin = time.monotonic()
    done = work()
    sys.stdout.write(f"{time.monotonic() - begin:6.1f} s  {what}\n")
    sys.stdout.flush()
    return done


if __name__ == "__main__":
    sys.exit(main())
