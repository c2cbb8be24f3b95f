"""The wheel, built once per run, offline, and the asset that it gives."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from hatchling import build

from fairlock.cdk.service.asset import assemble

ROOT = Path(__file__).resolve().parents[2]
RUNTIME_HAS = ("boto3", "botocore", "jmespath", "s3transfer", "python-dateutil", "six", "urllib3")


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
    home = tmp_path_factory.mktemp("runtime")
    for name in RUNTIME_HAS:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in {"..", "__pycache__"}}:
            (home / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return home
