"""examples/app, copied into a folder of its own: what its workflow runs, against the wheel.

Its environment has the wheel and what that requires, and nothing else of ours; `make release-check`
does the same with pip.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from release import environments
from release.checks import APP, commands_of_the_app
from release.environments import CheckFailedError
from tests.packaging.conftest import home_of, required_by
from tests.support.checkout import ROOT

pytestmark = pytest.mark.cached

WHERE = """
import fairlock, importlib.util
print(fairlock.__file__, *map(importlib.util.find_spec, ("testbed", "infra", "lambdas")))
"""


ASKED = (APP / "requirements.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def folder(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy, with an environment in `.venv`, and the CDK CLI of this repository."""
    home = tmp_path_factory.mktemp("copied") / "app"
    ignored = shutil.ignore_patterns("node_modules", "cdk.out", "__pycache__", ".pytest_cache")
    shutil.copytree(APP, home, ignore=ignored)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / ".venv")], check=True)
    [site] = (home / ".venv" / "lib").glob("python3.*/site-packages")
    home_of(required_by(*ASKED, installed=installed), site)
    for part in installed.iterdir():
        (site / part.name).symlink_to(part)
    (home / "node_modules").symlink_to(ROOT / "node_modules")
    return home


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are validated."""
    monkeypatch.delenv("CDK_VALIDATION")


def run(folder: Path, *words: str) -> str:
    """Runs a command as the app's workflow does; `node` is the one of this repository."""
    tools = folder / ".venv" / "bin", Path(sys.executable).parent
    path = ":".join((*map(str, tools), os.environ["PATH"]))
    program, *rest = words
    if program == "npx":
        program, *rest = str(folder / "node_modules" / ".bin" / rest[0]), *rest[1:]
    command = [shutil.which(program, path=path) or program, *rest]
    variables = {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    return environments.run(command, cwd=folder, environment=variables)


def test_the_app_asks_for_this_version_and_its_environment_has_nothing_else_of_ours(
    installed: Path, folder: Path
) -> None:
    [asked] = [one for one in map(Requirement, ASKED) if one.name == "fairlock"]
    names = required_by(*ASKED, installed=installed)
    [ours] = distributions(path=[str(installed)])
    assert asked.specifier.contains(ours.version)
    assert {"boto3", "aws-cdk-lib", "pytest"} <= names
    assert names.isdisjoint({"fairlock", "moto", "ministack", "aiobotocore"})
    assert run(folder, "python", "-c", WHERE).split() == [
        str(next((folder / ".venv" / "lib").iterdir()) / "site-packages/fairlock/__init__.py"),
        *("None", "None", "None"),
    ]


def test_what_the_apps_workflow_runs_succeeds(folder: Path) -> None:
    install, node, *commands = commands_of_the_app()
    assert install == ["pip", "install", "-r", "requirements.txt"]
    assert node == ["npm", "ci"]
    assert len(commands) == 2
    for words in commands:
        run(folder, *words)


def test_the_apps_tests_fail_if_its_script_ignores_its_lock(folder: Path, tmp_path: Path) -> None:
    """The control is a copy whose script goes on without the lock."""
    careless = tmp_path / "app"
    shutil.copytree(folder, careless, symlinks=True)
    script = (careless / "settle.py").read_text()
    assert "                lock.check()\n" in script
    (careless / "settle.py").write_text(script.replace("lock.check()", "pass"))
    with pytest.raises(CheckFailedError, match="status 1") as ended:
        run(careless, "python", "-m", "pytest", "-q", "--color=no", "tests/test_settle.py")
    failed = re.findall(r"^FAILED \S+::(\w+)", str(ended.value), re.MULTILINE)
    assert failed == ["test_paying_stops_when_the_lock_is_lost"]
