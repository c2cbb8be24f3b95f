"""Default clients: made when they are needed, for what the call needs."""

from __future__ import annotations

import math
import os
import signal
from typing import Any

import pytest

from fairlock import InvalidRequest, Lock, LockClient, locked
from fairlock.decorator import default_clients
from tests.unit.client.support.doubles import EventfulClock, Table
from tests.unit.decorator.conftest import Context


@pytest.fixture
def made(
    monkeypatch: pytest.MonkeyPatch, table: Table, clock: EventfulClock
) -> list[dict[str, Any]]:
    """The settings of the clients that are made by themselves."""
    settings: list[dict[str, Any]] = []

    def make(table_name: str, **given: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        settings.append({"table_name": table_name, **given})
        stand_ins: dict[str, Any] = {"client": table, "clock": clock, "heartbeat_every": math.inf}
        return LockClient(table_name, **{**stand_ins, **given})

    monkeypatch.setattr(default_clients, "LockClient", make)
    monkeypatch.setattr(default_clients, "_clients", {})
    return settings


def its_lease(_event: object, _context: object, lock: Lock | None = None) -> float:
    """A handler that returns the lease under which it runs."""
    assert lock is not None
    return lock.lease


@locked("deploy")
def without_client(_event: object, _context: object = None) -> str:
    """Has no client of its own."""
    return "done"


def test_a_client_is_made_from_the_environment_when_it_is_needed_and_reused(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    for _ in range(3):
        assert without_client({}, Context(30)) == "done"
        assert without_client({}) == "done"
    assert made == [
        {
            "table_name": "locks",
            "heartbeat_every": math.inf,
            "safe_period": 0.05,
        },
        {"table_name": "locks"},
    ]


def nothing(_event: object, _context: object = None) -> None: ...


@pytest.mark.parametrize(
    ("how", "arguments", "expected"),
    [
        ({}, ({},), {}),
        ({"if_taken": "skip"}, ({},), {}),
        ({"if_taken": "raise"}, ({},), {}),
        ({"lease": 20}, ({}, Context(30)), {}),
        ({}, ({}, Context(30)), {"heartbeat_every": math.inf, "safe_period": 0.05}),
    ],
    ids=["waits", "skip", "raise", "Lambda with a lease", "Lambda"],
)
def test_only_a_call_in_lambda_without_a_lease_gets_a_client_without_heartbeats(
    how: dict[str, Any],
    arguments: tuple[Any, ...],
    expected: dict[str, Any],
    made: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    locked("deploy", **how)(nothing)(*arguments)
    assert made == [{"table_name": "locks", **expected}]


@pytest.mark.parametrize("if_taken", ["wait", "skip", "raise"])
def test_a_program_that_has_just_begun_replaces_a_crashed_holder(
    if_taken: Any,  # noqa: ANN401 - one of three words
    made: list[dict[str, Any]],
    locks: LockClient,
    clock: EventfulClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    locks.acquire("deploy")
    clock.advance(3600)
    ran: list[str] = []

    def work() -> None:
        ran.append(if_taken)

    locked("deploy", if_taken=if_taken)(work)()
    assert (ran, len(made)) == ([if_taken], 1)


def test_without_a_client_and_a_table_name_the_call_says_what_to_do(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    with pytest.raises(InvalidRequest, match="give a client, or set FAIRLOCK_TABLE_NAME"):
        without_client({})
    assert made == []


@pytest.mark.parametrize(("begins_anew", "status"), [(True, 0), (False, -signal.SIGALRM)])
def test_a_child_that_is_forked_while_a_client_is_made_can_make_its_own(
    monkeypatch: pytest.MonkeyPatch, *, begins_anew: bool, status: int
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    creation = default_clients._creation  # noqa: SLF001 - the moment in which it is held is short
    if not begins_anew:
        monkeypatch.setattr(creation, "_reset_after_fork", lambda: None)
    with creation.lock:  # As a thread of the parent that the child does not have.
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(1)
            try:
                default_clients.default_client(heartbeats=True)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status


def test_nothing_is_acquired_before_the_first_call_so_that_no_snapshot_holds_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lambda SnapStart copies what an import leaves behind into many environments."""
    made: list[object] = []
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setattr(LockClient, "__init__", lambda *_args, **_settings: made.append(1))

    @locked("nightly")
    def handler() -> None: ...

    assert made == []
    with pytest.raises(AttributeError):  # That stand-in for a client cannot acquire.
        handler()
    assert made == [1]
