"""The wheel: what is in it, and that every way to install gives Lambda the same bytes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fairlock.cdk.service.asset import OLDEST

ROOT = Path(__file__).resolve().parents[2]

ASSEMBLE = """
import importlib.util, pathlib, site, sys
site.addsitedir(sys.argv[1])
sys.path.append(sys.argv[3])
package = pathlib.Path(importlib.util.find_spec("fairlock").origin).parent
spec = importlib.util.spec_from_file_location("asset", package / "cdk" / "service" / "asset.py")
asset = importlib.util.module_from_spec(spec)
spec.loader.exec_module(asset)
print(package)
print(asset.assemble(pathlib.Path(sys.argv[2])).name)
"""


def test_handlers_and_type_marker_travel_in_the_wheel(installed: Path) -> None:
    handlers = {path.name for path in (ROOT / "lambdas").glob("*.py")}
    assert handlers >= {"acquire.py", "heartbeat.py", "release.py"}
    assert {path.name for path in (installed / "fairlock" / "_lambdas").iterdir()} == handlers
    assert (installed / "fairlock" / "py.typed").is_file()


def test_the_wheel_installs_nothing_but_fairlock(installed: Path) -> None:
    names = {path.name for path in installed.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"fairlock"}
    assert not list(installed.rglob("*.pyc"))


def test_constructs_and_handlers_ask_for_what_they_import(installed: Path) -> None:
    [found] = distributions(path=[str(installed)])
    required = [Requirement(line) for line in found.requires or ()]
    assert {one.name for one in required if one.marker is None} == {"boto3"}
    assert {one.name for one in required if "cdk" in str(one.marker)} == {
        "aws-cdk-lib",
        "aws-lambda-powertools",
        "constructs",
    }


def test_the_wheel_asks_for_a_powertools_that_takes_the_reapers_logger(installed: Path) -> None:
    """`BatchProcessor(logger=…)` came with 3.30.0: seen in the wheels of 3.29.0 and 3.30.0."""
    [found] = distributions(path=[str(installed)])
    required = {one.name: one.specifier for one in map(Requirement, found.requires or ())}
    versions = ["3.29.0", "3.30.0", "3.37.0", "4.0.0"]
    assert list(required["aws-lambda-powertools"].filter(versions)) == ["3.30.0", "3.37.0"]
    assert OLDEST == {"aws-lambda-powertools": (3, 30)}


@pytest.mark.parametrize("way", ["installed", "editable"])
def test_every_way_to_install_gives_the_asset_of_the_checkout(
    way: str, asset: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The directory's name is the hash of its content."""
    site: Path = request.getfixturevalue(way)
    dependencies = str(distribution("jmespath").locate_file(""))
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ASSEMBLE, str(site), str(tmp_path), dependencies],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    package, name = finished.stdout.split()
    assert Path(package) == (site if way == "installed" else ROOT) / "fairlock"
    assert name == asset.name
    assembled = tmp_path / "fairlock-handlers" / name
    assert {path.relative_to(assembled) for path in assembled.rglob("*")} == {
        path.relative_to(asset) for path in asset.rglob("*")
    }
