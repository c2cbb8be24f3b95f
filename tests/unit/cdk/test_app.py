"""The app's settings, and its synthesis as a user runs it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from aws_cdk import App, RemovalPolicy, Stack
from aws_cdk import aws_logs as logs
from constructs import RootConstruct

from fairlock.cdk.service.asset import DISTRIBUTIONS, assemble
from infra import template as template_module
from infra.settings import SettingError, Settings
from infra.template import NotPortableError, Written, portable, write
from tests.unit.cdk.template import Json, properties

ROOT = Path(__file__).resolve().parents[3]


def settings(**context: object) -> Settings:
    root = RootConstruct()
    for name, value in context.items():
        root.node.set_context(name, value)
    return Settings.from_context(root.node)


def stacks(app: App) -> dict[str, Stack]:
    return {child.node.id: child for child in app.node.children if isinstance(child, Stack)}


def test_the_app_is_the_lock_service_and_on_request_the_demo(lock_app: App, demo_app: App) -> None:
    assert set(stacks(lock_app)) == {"Fairlock"}
    deployed = stacks(demo_app)
    assert set(deployed) == {"Fairlock", "FairlockDemo", "FairlockDemoDurable"}
    assert deployed["FairlockDemo"].dependencies == [deployed["Fairlock"]]


FLAGS = ("demo", "durable", "administration", "lifecycle_events", "pace")
SETTINGS: dict[str, tuple[object, str, object]] = {
    **dict.fromkeys(FLAGS, (False, "true", True)),
    "removal_policy": (RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE, "destroy", RemovalPolicy.DESTROY),
    "deletion_protection": (False, "TRUE", True),
    "log_retention": (logs.RetentionDays.ONE_MONTH, "7", logs.RetentionDays.ONE_WEEK),
    "log_level": ("INFO", "debug", "DEBUG"),
    "memory_size_mib": (256, "512", 512),
    "tracing": (None, "false", False),
    "architecture": (None, "x86_64", "x86_64"),
    "recursive_loop": (None, "False", False),
    "table_name": (None, "locks", "locks"),
}
"""What holds without a setting, what the command line gives, and what that means."""


def test_without_context_nothing_is_lost_and_each_setting_is_given_as_a_text() -> None:
    given = {name: text for name, (_, text, _) in SETTINGS.items()}
    given["log_retention_days"] = given.pop("log_retention")
    for number, found in ((0, settings()), (2, settings(**given))):
        expected = {name: setting[number] for name, setting in SETTINGS.items()}
        assert {name: getattr(found, name) for name in SETTINGS} == expected
    # JSON as in cdk.json, of which none must become the name of a table: the service refuses it.
    as_texts = settings(demo="true", log_retention_days="7")
    assert settings(demo=True, log_retention_days=7) == as_texts
    assert not settings(table_name=False).table_name


def test_a_value_that_is_none_is_told_with_what_it_must_be() -> None:
    sizes = ("1GB", "-1", "1e3", "", "٣٠٠", "9" * 5_000)
    for name, value, rule in (
        ("demo", "yes", "must be one of true, false"),
        ("removal_policy", "keep", "must be one of retain, destroy"),
        ("deletion_protection", "1", "must be one of true, false"),
        ("log_retention_days", "8", "must be one of 1, 7, 14, 30, 90, 365"),
        ("log_level", "TRACE", "must be one of DEBUG, INFO, WARNING, ERROR"),
        ("tracing", "maybe", "must be one of true, false, default"),
        ("architecture", "mips", "must be one of arm64, x86_64, default"),
        *(("memory_size_mib", size, "must be a whole number") for size in sizes),
    ):
        with pytest.raises(SettingError, match=f"^-c {name}={value}: {rule}$"):
            settings(**{name: value})


def test_synth_needs_neither_credentials_nor_network(tmp_path: Path) -> None:
    """Its environment has no AWS variable, and any proxy-aware client would meet a closed port.

    Nor are templates validated, which takes long: cfn-lint reads one with all that there may be.
    """
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AWS_")},
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "cdk.out" / "Fairlock.template.json").is_file()
    assert not (tmp_path / "cdk.out" / "FairlockDemo.template.json").exists()


def test_without_node_the_import_says_what_to_install() -> None:
    """CDK's own words are: '_NodeProcess' object has no attribute '_process'."""
    command = [sys.executable, "-c", "import fairlock.cdk"]
    alone = {"PATH": "", "PYTHONPATH": str(ROOT)}
    with pytest.raises(subprocess.CalledProcessError) as failed:
        subprocess.run(command, env=alone, capture_output=True, text=True, check=True, timeout=60)
    told = "\nImportError: fairlock.cdk needs Node.js 22 or newer, which the CDK runs"
    assert (failed.value.returncode, told in failed.value.stderr) == (1, True)


# `make template`: the lock stack as a template and a zip that need no CDK to deploy.


@pytest.fixture(scope="module")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the handlers themselves, which is a part of the template."""
    return assemble(tmp_path_factory.mktemp("asset"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return write(tmp_path_factory.mktemp("template"), {})


@pytest.fixture(scope="module")
def template(written: Written) -> Json:
    return dict(json.loads(written.template.read_text()))


def test_only_code_and_metadata_differ_from_the_cdk(template: Json, lock_template: Json) -> None:
    """So what end-to-end tests show of that stack holds for the template, the reaper included.

    A stack that one of them made can be updated by the other: the logical ids are the same.
    """
    assert template["Resources"].keys() == lock_template["Resources"].keys()
    assert template["Outputs"] == lock_template["Outputs"]
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


def test_parameters_name_the_code_and_no_cdk_is_left(template: Json, written: Written) -> None:
    key = {"Fn::Sub": f"${{CodeKeyPrefix}}{written.code.name}"}
    places = [each["Code"] for each in properties(template, "AWS::Lambda::Function")]
    assert places == [{"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": key}] * 4
    assert set(template["Parameters"]) == {"CodeBucket", "CodeKeyPrefix"}
    names = [each["Name"] for each in properties(template, "AWS::SSM::Parameter")]
    assert all(name["Fn::Sub"].startswith("/fairlock/${AWS::StackName}/") for name in names)
    text = written.template.read_text()
    assert not [part for part in ("cdk", "Bootstrap", "aws:asset") if part in text]


def test_with_all_settings_it_is_small_enough_to_be_sent(tmp_path: Path) -> None:
    flags = ("administration", "deletion_protection", "durable", "lifecycle_events", "pace")
    written = write(tmp_path / "full", {**dict.fromkeys(flags, "true"), "table_name": "l" * 255})
    assert written.template.stat().st_size < 51_200  # else it would have to be in a bucket


def test_a_template_that_still_needs_the_cdk_is_refused(lock_template: Json) -> None:
    for left in ("/cdk-bootstrap/hnb659fds/version", "/fairlock/Fairlock/LockTableName"):
        leaky = {**lock_template, "Outputs": {"Left": {"Value": left}}}
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


def test_the_command_ends_with_one_line_that_names_the_setting_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cdk.json", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(template_module, "ROOT", tmp_path)
    for setting, told in (
        ("durable=yes", "-c durable=yes: must be one of true, false"),
        ("table_name=${AWS::Region}", "table_name: must be 3 to 255 letters"),
        ("table_name=locks\n", "table_name: must be 3 to 255 letters"),
        ("table_name=a/Fairlock/b", "table_name: must be 3 to 255 letters"),
        ("memory_size_mib=999999999", "memory_size_mib: must be a whole number from 128"),
        ("__proto__=x", "__proto__: is no setting"),
        ("=x", ": is no setting"),
        ("durble=true", "durble: is no setting; the settings are administration, "),
        ("demo=true", "demo: is no setting"),
        ("durable", "-c durable=: must be one of true, false"),
    ):
        with pytest.raises(SystemExit) as ended:
            template_module.main([setting])
        assert str(ended.value).startswith(told)
    assert not (tmp_path / "out").exists()
