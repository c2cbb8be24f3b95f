"""A release that fails is told, and the command's status stands."""

from __future__ import annotations

import sys

import pytest
from botocore.exceptions import NoCredentialsError

from fairlock import Lock, create_table
from fairlock.cli import exit_codes, main
from fairlock.errors import LockStoreUnavailable
from testbed.localaws import LocalAws
from tests.support.faults import client_error
from tests.unit.cli.fleet import Fleet, outcome, until

ENDS_WHEN_TOLD = "until [ -e gone ]; do sleep 0.02; done; exit $0"
TOLD = "is not released, its lease ends it"


@pytest.mark.parametrize("status", [0, 3])
def test_a_table_that_is_gone_after_the_command_has_run_is_told_beside_its_status(
    fleet: Fleet, status: int
) -> None:
    """The control is a lock that cannot be acquired: 78, and the command is not started."""
    words = ("run", "x", "--table", "short-lived", "--", "sh", "-c", ENDS_WHEN_TOLD, str(status))
    create_table(fleet.dynamodb, "short-lived")
    process = fleet.start(*words)
    until(lambda: fleet.dynamodb.scan(TableName="short-lived")["Count"])
    fleet.dynamodb.delete_table(TableName="short-lived")
    (fleet.home / "gone").touch()
    ended, _, errors = outcome(process)
    [told] = errors.splitlines()
    assert ended == status
    assert told.startswith(f"fairlock: lock 'x' {TOLD}")
    assert "ResourceNotFoundException" in told
    ended, _, errors = fleet.run(*words)
    assert (ended, errors.count(TOLD)) == (78, 0)


@pytest.mark.parametrize(
    "error",
    [client_error("ExpiredTokenException"), NoCredentialsError(), LockStoreUnavailable("timeout")],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_release_raises_the_status_is_the_commands(
    error: Exception,
    aws: LocalAws,
    lock_table: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refuse(_lock: Lock) -> bool:
        raise error

    for name, value in {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Lock, "release", refuse)
    name = type(error).__name__
    words = ["fairlock", "run", name, "--max-wait", "0", "--", "sh", "-c", "echo ran; exit 3"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capfd.readouterr()
    assert (ended.value.code, told.out) == (3, "ran\n")
    assert told.err == f"fairlock: lock '{name}' {TOLD}: {error}\n"


@pytest.mark.parametrize("status", [0, 3])
def test_an_outage_that_outlasts_the_lease_is_a_loss(
    status: int,
    aws: LocalAws,
    lock_table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(lock: Lock) -> bool:
        lock._handle.lease.lose("its lease is over")  # noqa: SLF001 - as time does
        raise LockStoreUnavailable("timeout")

    for name, value in {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Lock, "release", refuse)
    words = ["fairlock", "run", f"lost-{status}", "--", "sh", "-c", f"exit {status}"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == (status or exit_codes.LOST)
