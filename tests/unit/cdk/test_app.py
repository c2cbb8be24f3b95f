"""The app's settings, and its synthesis as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App, RemovalPolicy, Stack
from aws_cdk import aws_logs as logs
from constructs import RootConstruct

from infra.settings import SettingError, Settings

ROOT = Path(__file__).resolve().parents[3]


def settings(**context: object) -> Settings:
    root = RootConstruct()
    for name, value in context.items():
        root.node.set_context(name, value)
    return Settings.from_context(root.node)


def stacks(app: App) -> dict[str, Stack]:
    return {child.node.id: child for child in app.node.children if isinstance(child, Stack)}


def test_the_app_is_the_lock_service_alone_unless_the_demo_is_asked_for(
    lock_app: App, demo_app: App
) -> None:
    assert set(stacks(lock_app)) == {"Fairlock"}
    assert set(stacks(demo_app)) == {"Fairlock", "FairlockDemo", "FairlockDemoDurable"}


def test_the_demo_uses_the_lock_service_of_the_other_stack(demo_app: App) -> None:
    deployed = stacks(demo_app)
    assert deployed["FairlockDemo"].dependencies == [deployed["Fairlock"]]


def test_without_context_nothing_is_lost_and_no_demo_is_deployed() -> None:
    assert settings() == Settings(
        demo=False,
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        deletion_protection=False,
        log_retention=logs.RetentionDays.ONE_MONTH,
        log_level="INFO",
        memory_size_mib=256,
        tracing=None,
        architecture=None,
        recursive_loop=None,
        table_name=None,
    )


def test_every_setting_can_be_given_as_the_command_line_gives_it() -> None:
    assert settings(
        demo="true",
        removal_policy="destroy",
        deletion_protection="TRUE",
        log_retention_days="7",
        log_level="debug",
        memory_size_mib="512",
        tracing="false",
        architecture="x86_64",
        recursive_loop="False",
        table_name="locks",
    ) == Settings(
        demo=True,
        removal_policy=RemovalPolicy.DESTROY,
        deletion_protection=True,
        log_retention=logs.RetentionDays.ONE_WEEK,
        log_level="DEBUG",
        memory_size_mib=512,
        tracing=False,
        architecture="x86_64",
        recursive_loop=False,
        table_name="locks",
    )


def test_a_value_may_be_json_as_in_cdk_json() -> None:
    assert settings(demo=True, log_retention_days=7) == settings(
        demo="true", log_retention_days="7"
    )


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("demo", "yes", "true, false"),
        ("removal_policy", "keep", "retain, destroy"),
        ("deletion_protection", "1", "true, false"),
        ("log_retention_days", "8", "1, 7, 14, 30, 90, 365"),
        ("log_level", "TRACE", "DEBUG, INFO, WARNING, ERROR"),
        ("tracing", "maybe", "true, false, default"),
        ("architecture", "mips", "arm64, x86_64, default"),
    ],
)
def test_an_unknown_value_is_told_with_the_known_ones(name: str, value: str, choices: str) -> None:
    with pytest.raises(SettingError, match=f"^-c {name}={value}: must be one of {choices}$"):
        settings(**{name: value})


@pytest.mark.parametrize("size", ["1GB", "-1", "1e3", "", "٣٠٠", "9" * 5_000])
def test_a_memory_size_that_is_no_number_is_told(size: str) -> None:
    with pytest.raises(SettingError, match=rf"^-c memory_size_mib={size}: must be a whole number$"):
        settings(memory_size_mib=size)


def test_synth_needs_neither_credentials_nor_network(tmp_path: Path) -> None:
    """Its environment has no AWS variable, and any proxy-aware client would meet a closed port."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
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
