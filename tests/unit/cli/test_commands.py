"""The commands by their words: options, statuses and errors, on a DynamoDB of moto's."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock import LockClient
from fairlock.cli import main
from fairlock.cli.target import Target
from tests.support import TABLE
from tests.support.faulty_table import client_error

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def dynamodb(fresh_dynamodb: DynamoDBClient) -> DynamoDBClient:
    """One that boto3's own clients find, too."""
    return fresh_dynamodb


@pytest.fixture
def run(
    fresh_dynamodb: DynamoDBClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> Run:
    """Status, output and errors of a command."""
    assert fresh_dynamodb
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", TABLE)
    if "profile" not in request.node.name:
        # A session reads the descriptions of services again, which takes longer than all the rest.
        shared = boto3.Session(region_name="us-east-1")
        monkeypatch.setattr(Target, "_session", shared)

    def run_command(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["fairlock", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    return run_command


@pytest.fixture
def locks(fresh_dynamodb: DynamoDBClient) -> Iterator[LockClient]:
    client = fresh_dynamodb
    with LockClient(TABLE, client=client, owner_name="anna", heartbeat_every=math.inf) as locks:
        yield locks


def test_a_stuck_lock_is_found_and_freed_and_the_reason_stays(run: Run, locks: LockClient) -> None:
    lock = locks.acquire("customer/1234")
    assert run("ls", "--prefix", "customer/")[1].startswith("customer/1234\theld by 1 of 1\tanna\t")
    status, output, _ = run("show", "customer/1234", "--json")
    [holder] = json.loads(output)["holders"]
    assert (status, holder["fencing_token"]) == (0, lock.fencing_token)
    words = ("release", "customer/1234", "--force")
    assert run(*words)[0] == 64
    status, output, errors = run(*words, "--yes", "--reason", "hangs", "--token", "7")
    assert (status, output) == (73, "")
    assert "no holder has the fencing token 7" in errors
    status, output, errors = run(*words, "--yes", "--reason", "hangs")
    assert (status, output) == (0, "customer/1234: released by force; free\n")
    assert "owner: anna" in errors
    assert lock.owner_id not in output + errors
    assert "reason: hangs" in run("show", "customer/1234")[1]
    assert run(*words, "--yes")[0] == 66


def test_an_owner_releases_by_its_id_also_from_the_input(
    run: Run, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = locks.acquire("a")
    monkeypatch.setattr("sys.stdin.readline", lambda: f"{lock.owner_id}\n", raising=False)
    assert run("release", "a", "--owner", "-")[:2] == (0, "a: released\n")
    assert run("release", "a", "--owner", "0123456789abcdef")[0] == 76


@pytest.mark.parametrize("words", [("release", "a"), ("release", "a", "--owner=x", "--force")])
def test_either_the_owner_or_force_is_named(run: Run, words: tuple[str, ...]) -> None:
    status, _, errors = run(*words)
    assert (status, "either --owner, or --force" in errors) == (64, True)


def test_a_table_profile_or_region_that_is_missing_is_named_with_a_remedy(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, _, errors = run("ls", "--table", "nosuch", "--region", "us-east-1")
    assert status == 78
    assert "lock table 'nosuch' in us-east-1: there is no such table" in errors
    for command in (("ls",), ("show", "a"), ("doctor",), ("release", "a", "--force")):
        status, _, errors = run(*command, "--profile", "nosuch")
        assert status == 78
        assert "no such profile" in errors
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert "set AWS_DEFAULT_REGION" in run("show", "a")[2]


def test_no_answer_is_69_and_names_the_table(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_more: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://nowhere")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", fail)
    for words in (("ls",), ("show", "a"), ("release", "a", "--force", "--yes")):
        status, output, errors = run(*words)
        assert (status, output) == (69, "")
        assert f"lock table '{TABLE}' in us-east-1: the lock table did not answer" in errors
        assert "check the network" in errors


def test_another_endpoint_is_asked_and_told(run: Run) -> None:
    status, _, errors = run("show", "a", "--endpoint-url", "http://127.0.0.1:9")
    assert status == 69
    assert "at http://127.0.0.1:9" in errors


def test_doctor_version_and_completion(run: Run) -> None:
    status, output, _ = run("doctor")
    assert (status, "UpdateItem" in output) == (0, True)
    assert run("--version")[1].startswith("fairlock 0.")
    assert "--install-completion" in run("--help")[1]


def test_a_stack_names_the_table_and_an_option_counts_more_than_the_environment(
    run: Run, locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks.acquire("customer/1")
    parameters: Any = boto3.Session(region_name="us-east-1").client("ssm")
    parameters.put_parameter(
        Name="/fairlock/Prod/LockTableName", Value=TABLE, Type="String", Overwrite=True
    )
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "another")
    assert run("show", "customer/1")[0] == 78
    assert run("show", "customer/1", "--stack", "Prod")[0] == 0
    assert run("ls", "--stack", "Prod")[1].startswith("customer/1\t")


def test_a_stack_without_a_service_is_78_and_names_the_parameter(run: Run) -> None:
    status, output, errors = run("ls", "--stack", "Nowhere")
    assert (status, output) == (78, "")
    told = "in us-east-1: no stack of this name shares a lock service"
    assert told in errors
    assert "/fairlock/Nowhere/LockTableName" in errors


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (client_error("AccessDeniedException"), 78, "allow ssm:GetParameter on it"),
        (EndpointConnectionError(endpoint_url="https://x"), 69, "did not answer"),
    ],
)
def test_a_parameter_store_that_refuses_or_is_silent_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, told: str
) -> None:
    class Parameters:
        meta = SimpleNamespace(region_name="us-east-1")

        def get_parameter(self, **_: object) -> None:
            raise error

    monkeypatch.setattr(Target, "client", lambda *_, **__: Parameters())
    ended, _, errors = run("show", "x", "--stack", "Prod")
    assert (ended, told in errors) == (status, True)
