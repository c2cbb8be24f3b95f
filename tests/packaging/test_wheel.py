"""The wheel: what is in it, and that every way to install gives Lambda the same bytes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from fairlock.cdk.service.asset import OLDEST
from release import checks, environments
from release.environments import CheckFailedError, oldest_and_newest
from testbed.localaws import LocalAws
from tests.packaging.conftest import home_of, required_by, run
from tests.support.checkout import ROOT

ASSEMBLE = """
import importlib.util, json, pathlib, site
site.addsitedir(sys.path[0])
package = pathlib.Path(importlib.util.find_spec("fairlock").origin).parent
spec = importlib.util.spec_from_file_location("asset", package / "cdk" / "service" / "asset.py")
asset = importlib.util.module_from_spec(spec)
spec.loader.exec_module(asset)
print(json.dumps({"package": str(package), "name": asset.assemble(pathlib.Path(OUT)).name}))
"""


def test_the_wheel_has_the_handlers_and_the_type_marker_and_nothing_but_fairlock(
    installed: Path,
) -> None:
    handlers = {path.name for path in (ROOT / "lambdas").glob("*.py")}
    assert handlers >= {"acquire.py", "heartbeat.py", "release.py"}
    assert {path.name for path in (installed / "fairlock" / "_lambdas").iterdir()} == handlers
    assert (installed / "fairlock" / "py.typed").is_file()
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"fairlock"}
    assert not list(installed.rglob("*.pyc"))


def test_constructs_and_handlers_ask_for_what_they_import_and_use(installed: Path) -> None:
    """`BatchProcessor(logger=…)` came with 3.30.0: seen in the wheels of 3.29.0 and 3.30.0."""
    [found] = distributions(path=[str(installed)])
    required = [Requirement(line) for line in found.requires or ()]
    assert {one.name for one in required if one.marker is None} == {"boto3"}
    of_cdk = {one.name: one.specifier for one in required if "cdk" in str(one.marker)}
    assert set(of_cdk) == {"aws-cdk-lib", "aws-lambda-powertools", "constructs"}
    versions = ["3.29.0", "3.30.0", "3.37.0", "4.0.0"]
    assert list(of_cdk["aws-lambda-powertools"].filter(versions)) == ["3.30.0", "3.37.0"]
    assert OLDEST == {"aws-lambda-powertools": (3, 30)}


@pytest.mark.parametrize("way", ["installed", "editable"])
def test_every_way_to_install_gives_the_asset_of_the_checkout(
    way: str, asset: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The directory's name is the hash of its content."""
    site: Path = request.getfixturevalue(way)
    dependencies = Path(str(distribution("jmespath").locate_file("")))
    told = run(f"OUT = {str(tmp_path)!r}{ASSEMBLE}", site, dependencies)
    package = str((site if way == "installed" else ROOT) / "fairlock")
    assert told == {"package": package, "name": asset.name}
    assembled = tmp_path / "fairlock-handlers" / asset.name
    assert {path.relative_to(assembled) for path in assembled.rglob("*")} == {
        path.relative_to(asset) for path in asset.rglob("*")
    }


# The wheel beside what it requires and nothing else: no CDK, no Node, no extra.


EVERY_NAME = """
import json, sys, importlib
import fairlock
for name in fairlock.__all__:
    getattr(fairlock, name)
for module in ("fairlock.optimistic", "fairlock.guarded"):
    importlib.import_module(module)
told = {}
for module, name in (("fairlock", "AsyncLockClient"), ("fairlock.cdk", "LockService")):
    try:
        getattr(importlib.import_module(module), name)
    except ImportError as error:
        told[name] = str(error)
told["loaded"] = sorted({name.partition(".")[0] for name in sys.modules} & {
    "aws_cdk", "constructs", "jsii", "aiobotocore", "greenlet", "aws_lambda_powertools"
})
print(json.dumps(told))
"""


def test_every_name_is_there_and_what_is_optional_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    needed = required_by("fairlock", installed=installed)
    told = run(EVERY_NAME, installed, home_of(needed, tmp_path))
    assert "from its repository with the extra 'async'" in str(told["AsyncLockClient"])
    assert "from its repository with the extra 'cdk'" in str(told["LockService"])
    assert told["loaded"] == []


# The package's page: a release names the repository, and no link of it is relative.


URL = "https://code.example/fairlock"
RELATIVE = re.compile(r"\]\((?!https://|#)")


def metadata(repository: str, home: Path) -> dict[str, Any]:
    """What a package says of itself that is built where pyproject.toml has this address."""
    for name in ("README.md", "LICENSE", "hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    settings = (ROOT / "pyproject.toml").read_text()
    changed, count = re.subn(
        r'^repository = ".*"$', f'repository = "{repository}"', settings, flags=re.MULTILINE
    )
    assert count == 1
    (home / "pyproject.toml").write_text(changed)
    printed = environments.run([sys.executable, "-m", "hatchling", "metadata"], cwd=home)
    told: dict[str, Any] = json.loads(printed)
    return told


@pytest.mark.parametrize("given", [URL, f"{URL}/", ""])
def test_a_release_names_the_repository_and_links_to_it(given: str, tmp_path: Path) -> None:
    """Without an address nothing is made up."""
    told = metadata(given, tmp_path)
    readme = told["readme"]["text"]
    if not given:
        assert not told.get("urls")
        assert readme == (ROOT / "README.md").read_text()
    else:
        assert told["urls"]["Repository"] == URL
        assert told["urls"]["Changelog"] == f"{URL}/blob/main/CHANGELOG.md"
        assert f"]({URL}/blob/main/docs/protocol.md)" in readme
        assert f"]({URL}/raw/main/docs/images/demo.svg)" in readme
    assert bool(RELATIVE.findall(readme)) == (not given)


# A user's project that tests its own code: docs/testing.md as it stands, against the wheel.

FILES = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_AN_EMULATOR = "test_processes.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the document."""
    home = tmp_path_factory.mktemp("project")
    for name, text in FILES.findall((ROOT / "docs" / "testing.md").read_text()):
        (home / name).write_text(text)
    return home


def run_pytest(project: Path, installed: Path, *arguments: str) -> str:
    """What pytest says of the project, where this wheel is what `fairlock` is."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider"]
    variables = {"PYTHONPATH": str(installed), "PYTEST_ADDOPTS": ""}
    try:
        return environments.run([*command, *arguments], cwd=project, environment=variables)
    except CheckFailedError as failed:
        return str(failed)


def test_the_examples_pass_and_fail_if_the_code_under_test_ignores_its_lock(
    project: Path, installed: Path
) -> None:
    """The control is a copy of the tests over code that goes on without the lock."""
    careless = (project / "billing.py").read_text()
    for line in ("                lock.check()\n", "    except LockWaitTimeout:\n"):
        assert line in careless
    careless = careless.replace("lock.check()", "pass")
    (project / "careless.py").write_text(careless)
    tests = (project / "test_billing.py").read_text().replace("from billing", "from careless")
    (project / "test_careless.py").write_text(tests)
    output = run_pytest(project, installed, f"--ignore={WITH_AN_EMULATOR}")
    failed = re.findall(r"^FAILED (\S+)", output, re.MULTILINE)
    assert failed == ["test_careless.py::test_nothing_is_charged_after_a_loss"], output
    assert "1 failed, 16 passed" in output, output


@pytest.mark.skipif("FAIRLOCK_EMULATOR" not in os.environ, reason="`make examples` sets it")
def test_the_example_with_an_emulator_passes(project: Path, installed: Path) -> None:
    output = run_pytest(project, installed, WITH_AN_EMULATOR)
    assert "1 passed" in output, output


# What may be published: a tag that fits, a known repository, a dated changelog.

CHANGELOG = """# Changelog

## Unreleased

Nothing.

## 0.2.0 (2030-03-17)

- Second.

## 0.1.0 (not released)

- First.
"""


def test_the_notes_of_a_version_end_where_the_next_begin() -> None:
    assert checks.notes_of("0.2.0", CHANGELOG) == ("2030-03-17", "- Second.")
    assert checks.notes_of("0.1.0", CHANGELOG) == ("not released", "- First.")
    ours = (checks.ROOT / "CHANGELOG.md").read_text()
    _, notes = checks.notes_of(checks.project()["version"], ours)
    assert notes.startswith("The first release.")
    assert "## " not in notes.replace("### ", "")


@pytest.mark.parametrize(
    ("tag", "version", "repository", "told"),
    [
        ("v0.2.0", "0.2.0", URL, None),
        ("v0.2.1", "0.2.0", URL, "the tag is v0.2.1: set `version`"),
        ("v0.2.0", "0.2.0", "", "set `repository` in pyproject.toml"),
        ("v0.1.0", "0.1.0", URL, "say when 0.1.0 is released"),
        ("v0.3.0", "0.3.0", URL, r"no heading `## 0\.3\.0"),
    ],
)
def test_a_tag_that_does_not_fit_version_address_or_date_is_refused_and_told_what_to_do(
    tag: str, version: str, repository: str, told: str | None
) -> None:
    with pytest.raises(CheckFailedError, match=told) if told else contextlib.nullcontext():
        checks.may_be_published(tag, version, repository, CHANGELOG)


def test_a_python_that_only_seems_to_be_there_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor in (11, 29):
        shim = tmp_path / f"python3.{minor}"
        shim.write_text("#!/bin/sh\necho not found >&2\nexit 127\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for python in oldest_and_newest():
        asked = environments.run(
            [str(python), "-c", "import sys; print(sys.version_info >= (3, 11))"], cwd=tmp_path
        )
        assert asked == "True\n"


def test_a_command_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match=r"status 3 of .*\nno luck"):
        environments.run(
            [sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], cwd=tmp_path
        )


# The wheel beside what it requires does the usual jobs, without the CDK and without Node.

JOBS = """
import asyncio, contextlib, io, json, os, sys
os.environ.clear()
os.environ.update(ENVIRONMENT)
told = {}

def command(*words):
    from fairlock.cli import main
    sys.argv = ["fairlock", *words]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main()
        except SystemExit as ended:
            return [ended.code, output.getvalue()]

told["create-table"] = command("create-table", "locks-of-jobs")

from fairlock import AsyncLockClient, LockClient, LockLost, locked
with LockClient("locks-of-jobs", owner_name="client") as locks:
    with contextlib.suppress(LockLost), locks.hold("a"):
        told["ls"] = command("ls", "--json")
        told["show"] = command("show", "a")
        told["release"] = command("release", "a", "--force", "--yes")
    told["run"] = command("run", "a", "--", sys.executable, "-c", "raise SystemExit(7)")

@locked("b")
def work(lock):
    return lock.name

told["decorator"] = work()

async def hold():
    async with AsyncLockClient("locks-of-jobs") as locks, locks.hold("c") as lock:
        return lock.name

told["async"] = asyncio.run(hold())

told["asl"] = command("asl", "--task", TASK, "--lock-name", "d")
told["loaded"] = sorted({name.partition(".")[0] for name in sys.modules} & {
    "aws_cdk", "constructs", "jsii", "aws_lambda_powertools", "moto", "pytest"
})
print(json.dumps(told))
"""


def test_the_wheel_does_the_usual_jobs_without_the_cdk_and_says_what_needs_it(
    installed: Path, aws: LocalAws, tmp_path: Path
) -> None:
    home = home_of(required_by("fairlock[cli,async]", installed=installed), tmp_path)
    environment = {**aws.environment, "FAIRLOCK_TABLE_NAME": "locks-of-jobs", "PATH": str(home)}
    task = home / "task.json"
    task.write_text('{"Type": "Pass"}')
    script = f"ENVIRONMENT, TASK = {environment!r}, {str(task)!r}{JOBS}"
    told = run(script, installed, home)
    assert told["create-table"][0] == 0
    [listed] = told["ls"][1].splitlines()
    assert json.loads(listed)["lock_name"] == "a"
    assert (told["show"][0], "client" in told["show"][1]) == (0, True)
    assert told["run"][0] == 7
    assert (told["release"][0], "a: released by force; free" in told["release"][1]) == (0, True)
    assert (told["decorator"], told["async"]) == ("b", "c")
    assert told["asl"] == [64, "fairlock: asl needs Node.js: there is no node on the path\n"]
    assert told["loaded"] == []
