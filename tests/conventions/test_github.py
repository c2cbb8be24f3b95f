"""What GitHub reads: workflows with few rights and pinned actions, forms, and updates of all pins.

`make lint` lets zizmor examine the same files; the last test shows that it would find something.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.checkout import ROOT

GITHUB = ROOT / ".github"
APP = ROOT / "examples" / "app" / ".github"
WORKFLOWS = sorted(path for home in (GITHUB, APP) for path in home.glob("workflows/*.yml"))
USES = re.compile(r"^\s*(?:- )?uses: (.+)$", re.MULTILINE)
WRITES = {
    ("release.yml", "attest"): {"id-token", "attestations"},
    ("release.yml", "publish"): {"id-token"},
    ("release.yml", "announce"): {"contents"},
}
"""The only jobs that may write, and what."""
INPUTS = {"input", "textarea", "dropdown", "checkboxes"}


def parsed(path: Path) -> Any:  # noqa: ANN401 - YAML
    return yaml.safe_load(path.read_text())


def rights_that_write(workflow: dict[str, Any]) -> dict[str, set[str]]:
    """The rights to write that each job has; the workflow itself gives none at all."""
    assert workflow["permissions"] == {}
    found = {
        name: {right for right, level in job.get("permissions", {}).items() if level != "read"}
        for name, job in workflow["jobs"].items()
    }
    return {name: rights for name, rights in found.items() if rights}


def wrong_in_form(form: dict[str, Any]) -> list[str]:
    """What GitHub would refuse in an issue form."""
    wrong = [key for key in ("name", "description") if not form.get(key)]
    fields = [part for part in form["body"] if part["type"] in INPUTS]
    ids = [part.get("id") for part in fields]
    wrong += ["no field"] * (not fields) + ["ids"] * (len(set(ids)) < len(ids) or None in ids)
    wrong += [part["id"] for part in fields if not part["attributes"].get("label")]
    return wrong + [
        part["type"] for part in form["body"] if part["type"] not in {*INPUTS, "markdown"}
    ]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_workflow_has_a_time_limit_and_no_right_that_it_does_not_need(path: Path) -> None:
    workflow = parsed(path)
    expected = {job: rights for (file, job), rights in WRITES.items() if file == path.name}
    assert rights_that_write(workflow) == expected
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())


def test_an_action_is_pinned_to_one_commit_everywhere_and_its_version_told() -> None:
    used = {action for path in WORKFLOWS for action in USES.findall(path.read_text())}
    assert len(used) == len({action.partition("@")[0] for action in used})
    assert [action for action in used if not re.search(r" # v\d+\.\d+\.\d+$", action)] == []


def test_workflows_call_targets_of_the_makefile_and_test_each_supported_python() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    path = GITHUB / "workflows" / "test.yml"
    called = set(re.findall(r"^ +- run: make (\S+)", path.read_text(), re.MULTILINE))
    assert called == {"test", "release-check", "docs"} <= set(targets)
    matrix = parsed(path)["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    assert set(named) <= set(matrix["python"])
    assert project["requires-python"] == f">={matrix['python'][0]}"
    assert {"macos-15", "ubuntu-24.04-arm"} <= {extra["os"] for extra in matrix["include"]}


def test_nothing_is_published_that_was_not_built_checked_and_attested() -> None:
    jobs = parsed(GITHUB / "workflows" / "release.yml")["jobs"]
    assert [jobs[name]["needs"] for name in ("attest", "publish", "announce")] == [
        "build",
        "attest",
        "publish",
    ]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert commands == ['make release-check TAG="$GITHUB_REF_NAME"', "make test"]
    assert jobs["publish"]["environment"] == "pypi"
    assert not [step for step in jobs["publish"]["steps"] if "run" in step]


def test_dependabot_updates_each_folder_that_has_pins() -> None:
    updates = parsed(GITHUB / "dependabot.yml")["updates"]
    folders = {one["package-ecosystem"]: set(one["directories"]) for one in updates}
    pins = {path.parent for path in ROOT.glob("**/requirements.in") if ".venv" not in path.parts}
    assert folders["uv"] == {"/", *(f"/{path.relative_to(ROOT)}" for path in pins)}
    packages = ["package.json", "examples/app/package.json", "testbed/second_engine/package.json"]
    assert all((ROOT / name).exists() for name in packages)
    assert folders["npm"] == {f"/{Path(name).parent}".removesuffix(".") for name in packages}
    assert folders["github-actions"] == {"/", "/examples/app"}


def test_issue_forms_are_complete_and_send_vulnerabilities_elsewhere() -> None:
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert len(forms) == 3
    assert [wrong_in_form(parsed(path)) for path in forms] == [[]] * 3
    assert parsed(GITHUB / "ISSUE_TEMPLATE" / "config.yml") == {"blank_issues_enabled": False}
    words = "*Security* tab", "*Report a vulnerability*"
    for text in ((GITHUB / "ISSUE_TEMPLATE" / "bug.yml"), ROOT / "SECURITY.md"):
        assert all(word in text.read_text() for word in words), text


CARELESS = """
on: pull_request_target
permissions: write-all
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v7
      - run: echo ${{ github.event.pull_request.title }}
"""


def test_a_careless_workflow_and_form_are_found() -> None:
    job = {"permissions": {"contents": "write", "actions": "read"}}
    assert rights_that_write({"permissions": {}, "jobs": {"test": job}}) == {"test": {"contents"}}
    form = {"name": "Bug", "body": [{"type": "input", "attributes": {}}, {"type": "text"}]}
    with pytest.raises(KeyError, match="id"):
        wrong_in_form(form)
    form["body"][0]["id"] = "it"  # type: ignore[index]  # a list of dictionaries
    assert wrong_in_form(form) == ["description", "it", "text"]


def test_the_linter_finds_a_careless_workflow(tmp_path: Path) -> None:
    home = tmp_path / ".github" / "workflows"
    home.mkdir(parents=True)
    (home / "test.yml").write_text(CARELESS)
    [lint] = re.findall(r"^\t\$\(BIN\)/zizmor (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    options = [word for word in lint.split() if word.startswith("-") or word == "all"]
    zizmor = Path(sys.executable).parent / "zizmor"
    ended = subprocess.run(
        [zizmor, *options, "--color=never", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode > 10
    found = re.findall(r"^\w+\[([\w-]+)\]", ended.stdout, re.MULTILINE)
    wanted = {"dangerous-triggers", "excessive-permissions", "template-injection", "unpinned-uses"}
    assert wanted <= set(found)
