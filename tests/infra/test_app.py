"""The app's settings, and its synthesis as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App, RemovalPolicy
from aws_cdk import aws_logs as logs

from infra.settings import SettingError, Settings

ROOT = Path(__file__).resolve().parents[2]


def settings(**context: object) -> Settings:
    return Settings.from_context(App(context=context).node)


def test_without_context_nothing_is_lost_and_no_demo_is_deployed() -> None:
    assert settings() == Settings(
        demo=False,
        removal_policy=RemovalPolicy.RETAIN,
        deletion_protection=False,
        log_retention=logs.RetentionDays.ONE_MONTH,
        log_level="INFO",
    )


def test_every_setting_can_be_given_as_the_command_line_gives_it() -> None:
    assert settings(
        demo="true",
        removal_policy="destroy",
        deletion_protection="TRUE",
        log_retention_days="7",
        log_level="debug",
    ) == Settings(
        demo=True,
        removal_policy=RemovalPolicy.DESTROY,
        deletion_protection=True,
        log_retention=logs.RetentionDays.ONE_WEEK,
        log_level="DEBUG",
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
    ],
)
def test_an_unknown_value_is_told_with_the_known_ones(name: str, value: str, choices: str) -> None:
    with pytest.raises(SettingError, match=f"^-c {name}={value}: must be one of {choices}$"):
        settings(**{name: value})


def test_synth_needs_neither_credentials_nor_network(tmp_path: Path) -> None:
    """Its environment has no AWS variable, and any proxy-aware client would meet a closed port."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "CDK_OUTDIR": str(tmp_path / "cdk.out"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1",
    }
    subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "cdk.out" / "Leasehold.template.json").is_file()
    assert not (tmp_path / "cdk.out" / "LeaseholdDemo.template.json").exists()
