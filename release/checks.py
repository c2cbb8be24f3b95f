"""What has to hold of the packages, each as a function that raises `CheckFailedError`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from release.environments import CheckFailedError, run

ROOT: Final = Path(__file__).resolve().parent.parent
APP: Final = ROOT / "examples" / "app"
UV: Final = str(Path(sys.executable).parent / "uv")
TWINE: Final = str(ROOT / ".release" / "venv" / "bin" / "twine")
_HEADING: Final = re.compile(r"^## (?P<version>\d+\.\d+\.\d+) \((?P<when>[^)]+)\)\n", re.MULTILINE)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_FAKE: Final = """
import pytest
from fairlock import LockWaitTimeout

pytest_plugins = ["fairlock.testing.plugin"]

def test_a_lock_excludes(fairlock_locks):
    with fairlock_locks.another("first").hold("x"), pytest.raises(LockWaitTimeout):
        fairlock_locks.acquire("x", max_wait=5)
    assert fairlock_locks.acquire("x").fencing_token
"""
_IMPORTS: Final = "import fairlock, fairlock.guarded, fairlock.optimistic, fairlock.testing"


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml, with the repository's address."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    address = settings["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    return {**settings["project"], "repository": address}


def notes_of(version: str, changelog: str) -> tuple[str, str]:
    """When the changelog says that a version was released, and what it says of it.

    Raises:
        CheckFailedError: it says nothing of this version.
    """
    found = list(_HEADING.finditer(changelog))
    for heading, following in zip(found, [*found[1:], None], strict=True):
        if heading["version"] == version:
            end = following.start() if following else len(changelog)
            return heading["when"], changelog[heading.end() : end].strip()
    message = f"CHANGELOG.md has no heading `## {version} (date)`"
    raise CheckFailedError(message)


def may_be_published(tag: str, version: str, repository: str, changelog: str) -> None:
    """Whether a tag names what is built, and the packages will say where they are from.

    Raises:
        CheckFailedError: says what to do first.
    """
    when, _ = notes_of(version, changelog)
    to_do = []
    if tag != f"v{version}":
        to_do.append(f"the tag is {tag}: set `version` in pyproject.toml, which says {version}")
    if not repository.startswith("https://"):
        to_do.append("set `repository` in pyproject.toml to the address of the repository")
    if not _DATE.fullmatch(when):
        to_do.append(f"say when {version} is released in CHANGELOG.md: `## {version} (2030-03-17)`")
    if to_do:
        raise CheckFailedError("; ".join(to_do))


def build(target: Path) -> list[Path]:
    """Both packages. The wheel is built from the source package, so it needs nothing else."""
    for old in target.glob("fairlock-*"):
        old.unlink()
    run([sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)], cwd=ROOT)
    return sorted(target.glob("fairlock-*"))


def metadata(packages: list[Path]) -> None:
    """What a package index would refuse: twine reads the metadata and renders the page."""
    run([TWINE, "check", "--strict", *map(str, packages)], cwd=ROOT)


def installs(package: Path, python: Path, home: Path) -> None:
    """Installs a package as a user would, and uses it: imports, command, fixtures."""
    bin_ = home / "venv" / "bin"
    run([UV, "venv", "--quiet", "--python", str(python), str(home / "venv")], cwd=home)
    into = ["--quiet", "--python", str(bin_ / "python")]
    run([UV, "pip", "install", *into, f"fairlock[cli] @ {package.as_uri()}", "pytest"], cwd=home)
    run([str(bin_ / "python"), "-I", "-W", "error", "-c", _IMPORTS], cwd=home)
    version = run([str(bin_ / "fairlock"), "--version"], cwd=home)
    if version != f"fairlock {project()['version']}\n":
        raise CheckFailedError(version)
    for words in (["--help"], ["run", "--help"]):
        if "Usage: fairlock" not in run([str(bin_ / "fairlock"), *words], cwd=home):
            message = f"fairlock {' '.join(words)} shows no usage"
            raise CheckFailedError(message)
    (home / "test_smoke.py").write_text(_FAKE)
    run([str(bin_ / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=home)


def commands_of_the_app() -> list[list[str]]:
    """The commands of the workflow in examples/app, in words."""
    workflow = yaml.safe_load((APP / ".github" / "workflows" / "test.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    return [shlex.split(step["run"]) for step in steps if "run" in step]


def app(wheel: Path, python: Path, home: Path) -> None:
    """Copies examples/app and does there what its workflow does, with the wheel for Fairlock."""
    folder = home / "app"
    ignored = shutil.ignore_patterns("node_modules", "cdk.out", "__pycache__", ".pytest_cache")
    shutil.copytree(APP, folder, ignore=ignored)
    run([str(python), "-m", "venv", str(home / "venv")], cwd=home)
    path = f"{home / 'venv' / 'bin'}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # First, by its path: requirements.txt is content with what is there, and asks no index for it.
    into = ["--quiet", "--python", str(home / "venv" / "bin" / "python")]
    run([UV, "pip", "install", *into, f"fairlock[cdk,cli] @ {wheel.as_uri()}"], cwd=home)
    for program, *words in commands_of_the_app():
        if program == "npx":
            program, *words = (f"node_modules/.bin/{words[0]}", *words[1:])  # noqa: PLW2901 - npm's own npx is not on our path
        found = shutil.which(program, path=path) or program
        run([found, *words], cwd=folder, environment=environment)
