"""`make template`: the lock stack as a template and a zip that need no CDK to deploy."""

from __future__ import annotations

import copy
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fairlock.cdk.service.asset import DISTRIBUTIONS
from infra import template as template_module
from infra.portable_template import NotPortableError, portable
from infra.settings import SettingError
from infra.template import Written, write
from tests.unit.cdk.template import resources

Json = dict[str, Any]
MOST_BYTES_IN_A_REQUEST = 51_200
"""Of a template that is not in a bucket."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(tmp_path_factory.mktemp("template"), {})


@pytest.fixture(scope="module")
def template(written: Written) -> Json:
    return dict(json.loads(written.template.read_text()))


def test_it_has_the_resources_and_outputs_of_the_stack_that_the_cdk_deploys(
    template: Json, lock_template: Json
) -> None:
    """By the same logical ids: a stack that one of them made can be updated by the other."""
    assert template["Resources"].keys() == lock_template["Resources"].keys()
    assert template["Outputs"] == lock_template["Outputs"]


def test_nothing_but_code_names_and_metadata_differs_from_what_the_cdk_made(
    lock_template: Json,
) -> None:
    """So what end-to-end tests show of that stack holds for the template, the reaper included."""
    made = portable(lock_template, stack_name="Fairlock", code_file="code.zip")
    assert bare(made["Resources"]) == bare(lock_template["Resources"])
    made["Resources"]["LocksReaperEveryMachine672B8DD7"]["Properties"]["Targets"] = []
    assert bare(made["Resources"]) != bare(lock_template["Resources"])


def bare(resources: Json) -> Json:
    left = copy.deepcopy(resources)
    for resource in left.values():
        resource.pop("Metadata", None)
        changed = {"AWS::Lambda::Function": "Code", "AWS::SSM::Parameter": "Name"}
        resource["Properties"].pop(changed.get(resource["Type"]), None)
    return left


def test_every_function_takes_its_code_from_the_bucket_that_a_parameter_names(
    template: Json, written: Written
) -> None:
    key = {"Fn::Sub": f"${{CodeKeyPrefix}}{written.code.name}"}
    functions = resources(template, "AWS::Lambda::Function").values()
    assert [each["Properties"]["Code"] for each in functions] == [
        {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": key}
    ] * 4
    assert set(template["Parameters"]) == {"CodeBucket", "CodeKeyPrefix"}


def test_other_stacks_find_it_by_whatever_name_it_is_deployed(template: Json) -> None:
    shared = resources(template, "AWS::SSM::Parameter").values()
    names = [parameter["Properties"]["Name"] for parameter in shared]
    assert {"Fn::Sub": "/fairlock/${AWS::StackName}/AcquireFunctionArn"} in names
    assert all(name["Fn::Sub"].startswith("/fairlock/${AWS::StackName}/") for name in names)


def test_nothing_of_the_cdk_is_left(written: Written) -> None:
    text = written.template.read_text()
    assert not [part for part in ("cdk", "Bootstrap", "aws:asset") if part in text]


def test_with_all_settings_it_is_small_enough_to_be_sent(tmp_path: Path) -> None:
    flags = ("administration", "deletion_protection", "durable", "lifecycle_events", "pace")
    written = write(tmp_path / "full", {**dict.fromkeys(flags, "true"), "table_name": "l" * 255})
    assert written.template.stat().st_size < MOST_BYTES_IN_A_REQUEST


@pytest.mark.parametrize(
    "left", ["/cdk-bootstrap/hnb659fds/version", "/fairlock/Fairlock/LockTableName"]
)
def test_a_template_that_still_needs_the_cdk_is_refused(lock_template: Json, left: str) -> None:
    leaky = copy.deepcopy(lock_template)
    leaky["Outputs"] = {"Left": {"Value": left}}
    with pytest.raises(NotPortableError, match="still has"):
        portable(leaky, stack_name="Fairlock", code_file="code.zip")


def test_the_code_has_the_licences_of_all_that_is_in_it(written: Written) -> None:
    with zipfile.ZipFile(written.code) as archive:
        names = set(archive.namelist())
        times = {entry.date_time[0] for entry in archive.infolist()}
    licensed = {name.split("/")[1] for name in names if name.startswith("licenses/")}
    assert licensed == set(DISTRIBUTIONS)
    assert "LICENSE" in names  # of Fairlock
    assert times == {1980}


def test_the_same_sources_give_the_same_bytes(written: Written, tmp_path: Path) -> None:
    again = write(tmp_path, {})
    for one, other in ((written.template, again.template), (written.code, again.code)):
        assert (one.name, one.read_bytes()) == (other.name, other.read_bytes())


def test_other_code_has_another_name_and_replaces_the_older_file(
    template: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter([{"a.py": b"1"}, {"a.py": b"2"}])
    synthesized = {**template, "Resources": {}}
    monkeypatch.setattr(template_module, "_synthesized", lambda *_: (synthesized, next(versions)))
    first, second = (write(tmp_path, {}) for _ in range(2))
    assert first.code.name != second.code.name
    assert set(tmp_path.iterdir()) == {second.template, second.code}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"durable": "yes"}, "durable=yes: must be one of true, false"),
        ({"durble": "true"}, "durble: is no setting; the settings are administration, "),
        ({"demo": "true"}, "demo: is no setting"),
    ],
)
def test_a_wrong_setting_is_refused_and_nothing_written(
    tmp_path: Path, setting: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        write(tmp_path / "out", setting)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("durable=yes", "-c durable=yes: must be one of true, false"),
        ("table_name=${AWS::Region}", "table_name: must be 3 to 255 letters"),
        ("table_name=locks\n", "table_name: must be 3 to 255 letters"),
        ("table_name=a/Fairlock/b", "table_name: must be 3 to 255 letters"),
        ("memory_size_mib=999999999", "memory_size_mib: must be a whole number from 128"),
        ("__proto__=x", "__proto__: is no setting"),
        ("=x", ": is no setting"),
        ("durable", "-c durable=: must be one of true, false"),
    ],
)
def test_the_command_ends_with_one_line_that_names_the_setting_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, told: str
) -> None:
    monkeypatch.setattr(template_module, "ROOT", _with_context(tmp_path))
    with pytest.raises(SystemExit) as ended:
        template_module.main([setting])
    assert str(ended.value).startswith(told)
    assert not (tmp_path / "out").exists()


def _with_context(path: Path) -> Path:
    for name in ("cdk.json", "LICENSE"):
        (path / name).write_bytes((template_module.ROOT / name).read_bytes())
    return path
