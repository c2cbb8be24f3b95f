"""The wheel, built once per run, offline, and the asset that it gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from hatchling import build
from packaging.requirements import Requirement

from fairlock.cdk.service.asset import assemble
from tests.support.checkout import ROOT


def unpacked(wheel: Path, target: Path) -> Path:
    """What installing a pure wheel does to the files."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as site-packages is after installing the wheel."""
    return unpacked(wheel, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as site-packages is after an editable install."""
    out = tmp_path_factory.mktemp("editable")
    before = Path.cwd()
    os.chdir(ROOT)  # the build backend's interface takes the project from the working directory
    try:
        name = build.build_editable(str(out))
    finally:
        os.chdir(before)
    return unpacked(out / name, out / "site")


@pytest.fixture(scope="session")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Lambda asset, assembled from the checkout."""
    return assemble(tmp_path_factory.mktemp("cdk.out"))


@pytest.fixture(scope="session")
def boto3_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with boto3 and what it needs, and not with the rest of site-packages."""
    return home_of(required_by("boto3"), tmp_path_factory.mktemp("runtime"))


# A directory with a few distributions, and programs that find nothing else.


def required_by(*wanted: str, installed: Path | None = None) -> set[str]:
    """The names of all distributions that these require, with themselves, and without Fairlock.

    Args:
        wanted: requirements.
        installed: a directory where Fairlock is installed, if one of them is Fairlock.
    """
    places = [] if installed is None else [str(installed)]
    names: set[str] = set()
    seen: set[str] = set()
    waiting = [*map(Requirement, wanted)]
    while waiting:
        each = waiting.pop()
        if str(each) in seen:
            continue
        seen.add(str(each))
        if each.name == "fairlock":
            [found] = distributions(path=places)
        else:
            names.add(each.name)
            try:
                found = distribution(each.name)
            except PackageNotFoundError:
                continue
        for needed in map(Requirement, found.requires or ()):
            extras = [{"extra": extra} for extra in ("", *each.extras)]
            if needed.marker is None or any(map(needed.marker.evaluate, extras)):
                waiting.append(needed)
    return names


def home_of(names: Iterable[str], home: Path) -> Path:
    """A directory as site-packages is with these distributions."""
    for name in names:
        try:
            found = distribution(name)
        except ModuleNotFoundError:
            continue
        tops = {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (home / top).exists():
                (home / top).symlink_to(Path(str(found.locate_file(top))))
    return home


def run(script: str, *places: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a script tells: the JSON of its last line.

    It runs isolated (-I), without site-packages (-S), leaving no byte code (-B).
    """
    paths = [str(place) for place in places]
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path[:0] = {paths}\n{script}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert finished.returncode == 0, finished.stderr
    told: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return told
