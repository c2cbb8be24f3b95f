"""Which table a command is about, as people are told: what they need to find the mistake."""

from __future__ import annotations

import sys

import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock.aws.retry import raise_if_unknown
from fairlock.cli import main
from fairlock.cli.exit_codes import CONFIGURATION, UNAVAILABLE, Ended
from fairlock.cli.target import Target
from fairlock.errors import LockItemMalformed
from tests.support.faults import client_error

ADDRESS = "http://127.0.0.1:4711"
LEFT_OVER = {
    "AWS_ENDPOINT_URL": ADDRESS,
    "AWS_ENDPOINT_URL_DYNAMODB": ADDRESS,
}


@pytest.fixture(autouse=True)
def of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEFT_OVER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


def test_aws_itself_is_told_by_its_region() -> None:
    """The control of the next one."""
    assert Target(table="locks").place() == "lock table 'locks' in eu-central-1"


@pytest.mark.parametrize("name", LEFT_OVER)
def test_an_address_that_the_environment_names_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of yesterday's demo, for instance: its table is not that of production."""
    monkeypatch.setenv(name, ADDRESS)
    assert Target(table="locks").place() == f"lock table 'locks' in eu-central-1 at {ADDRESS}"


def test_without_a_region_the_place_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert Target(table="locks").place() == "lock table 'locks' in no known region"


COMMANDS = (
    "run a -- true",
    "ls",
    "show a",
    "watch",
    "watch a",
    "release a --owner 7d3f2c1e-5b0a-4c8e",
    "release a --force --yes --reason r",
    "doctor",
    "show a --endpoint-url http://127.0.0.1:9",
)


@pytest.mark.parametrize(
    "line", [*(f"{line} --table locks" for line in COMMANDS), "create-table locks"]
)
def test_without_a_region_each_command_says_how_to_give_one(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if a variable is set that others read: then it says which one counts."""
    words = line.replace(" -- true --table locks", " --table locks -- true").split()
    monkeypatch.setattr(sys, "argv", ["fairlock", *words])
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == CONFIGURATION
    told = capsys.readouterr().err
    assert "set AWS_DEFAULT_REGION, or give --region on the command line" in told
    assert "boto3 does not read AWS_REGION, which is set" in told


@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (client_error("ThrottlingException"), "DynamoDB throttles: repeat the command later"),
        (client_error("InternalServerError", 500), "see AWS's health page"),
        (EndpointConnectionError(endpoint_url=ADDRESS), "check the network, the region and"),
    ],
)
def test_the_advice_fits_what_has_happened(
    cause: Exception, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended) as ended, Target(table="locks").named_in_errors(so="; not started"):
        raise_if_unknown(cause)
    assert ended.value.code == UNAVAILABLE
    told = capsys.readouterr().err
    assert told.startswith("fairlock: lock table 'locks' in eu-central-1: ")
    assert advice in told
    assert told.endswith("; not started\n")
    assert told.count("check the network") == advice.startswith("check the network")


def test_the_table_of_a_spoilt_item_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as ended, Target(table="locks").named_in_errors():
        raise LockItemMalformed("LOCK#spoilt")
    assert ended.value.code == CONFIGURATION
    told = capsys.readouterr().err
    assert told.startswith("fairlock: lock table 'locks' in eu-central-1: an item under 'LOCK#sp")
