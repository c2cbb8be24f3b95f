"""Lambda handlers: the lease is what is left of the invocation, and nothing has to renew it."""

from __future__ import annotations

import math
import os
import signal
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError

from leasehold import InvalidRequest, Lock, LockClient, LockWaitTimeout, locked
from leasehold.locks import default_clients
from tests.client.doubles import EventfulClock, Table
from tests.decorator.conftest import Context


def its_lease(_event: object, _context: object, lock: Lock | None = None) -> float:
    """A handler that returns the lease under which it runs."""
    assert lock is not None
    return lock.lease


handler = locked("deploy", client=lambda: Clients.current)(its_lease)


class Clients:
    """Where the handlers find their client, as it is made after their module."""

    current: LockClient


@pytest.fixture(autouse=True)
def current(locks: LockClient) -> None:
    Clients.current = locks


@pytest.mark.parametrize(
    ("seconds_left", "lease"), [(30, 31), (0.25, 1.25), (-1, 1), (899.5, 900.5)]
)
def test_the_lease_lasts_until_the_invocation_must_have_ended(
    seconds_left: float, lease: float
) -> None:
    assert handler({}, Context(seconds_left)) == lease


def test_a_lease_that_is_given_stands() -> None:
    given = locked("deploy", lease=5, client=lambda: Clients.current)(its_lease)
    assert given({}, Context(30)) == 5


def test_a_function_without_such_a_context_takes_the_clients_lease() -> None:
    assert handler({}, "no context") == 60


@pytest.mark.parametrize(
    ("wait", "seconds_left", "waited"), [(None, 30, 29), (10, 30, 10), (10, 0.5, 0)]
)
def test_no_wait_is_longer_than_what_is_left_of_the_invocation(
    wait: float | None, seconds_left: float, waited: float, locks: LockClient, clock: EventfulClock
) -> None:
    bounded = locked("deploy", wait=wait, client=locks)(its_lease)
    locks.acquire("deploy", lease=3600)
    began = clock.monotonic()
    with pytest.raises(LockWaitTimeout):
        bounded({}, Context(seconds_left))
    assert clock.monotonic() - began == pytest.approx(waited)


@pytest.mark.parametrize("wait", [5, 150])
def test_without_a_wait_of_its_own_a_handler_waits_as_long_as_its_client(
    wait: float, table: Table, clock: EventfulClock
) -> None:
    with LockClient("locks", client=table, clock=clock, wait=wait, heartbeat_every=math.inf) as own:  # type: ignore[arg-type]  # stands in
        own.acquire("deploy", lease=3600)
        began = clock.monotonic()
        with pytest.raises(LockWaitTimeout):
            locked("deploy", client=own)(its_lease)({}, Context(600))
    assert clock.monotonic() - began == pytest.approx(wait)


@pytest.mark.parametrize(("lease", "is_free"), [(None, True), (600, False)])
def test_the_lock_of_an_invocation_that_died_is_free_soon_after_its_deadline(
    lease: float | None,
    is_free: bool,  # noqa: FBT001 - a parameter of the test
    locks: LockClient,
    table: Table,
    clock: EventfulClock,
) -> None:
    """It could not release. The control: with a lease of its own, its lock stays taken."""

    @locked("deploy", lease=lease, client=locks)
    def die(_event: object, _context: Context) -> None:
        table.outage = ConnectionClosedError(endpoint_url="https://dynamodb")

    deadline = clock.monotonic() + 30
    die({}, Context(30))
    table.outage = None
    try:
        locks.acquire("deploy", wait=45)
    except LockWaitTimeout:
        assert not is_free
    else:
        assert is_free
        assert 0 < clock.monotonic() - deadline < 10  # It looked for the first time after 5 s.


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


@locked("deploy")
def without_client(_event: object, _context: object = None) -> str:
    """Has no client of its own."""
    return "done"


def test_a_client_is_made_from_the_environment_when_it_is_needed_and_kept(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_TABLE_NAME", "locks")
    for _ in range(3):
        assert without_client({}, Context(30)) == "done"
        assert without_client({}) == "done"
    assert made == [
        {
            "table_name": "locks",
            "heartbeat_every": math.inf,
            "safe_period": 0.05,
            "takeover": "stored_expiry",
        },
        {"table_name": "locks"},
    ]


def test_an_invocation_takes_the_lock_of_one_that_died_without_having_watched_it(
    made: list[dict[str, Any]],
    locks: LockClient,
    clock: EventfulClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control is a client that goes by what it has watched, and has not looked before."""
    monkeypatch.setenv("LEASEHOLD_TABLE_NAME", "locks")
    locks.acquire("deploy", lease=10)
    clock.advance(13)
    with pytest.raises(LockWaitTimeout):
        locked("deploy", if_taken="raise", client=locks)(its_lease)({}, Context(30))
    assert locked("deploy", if_taken="raise")(its_lease)({}, Context(30)) == 31
    assert len(made) == 1


def test_without_a_client_and_a_table_name_the_call_says_what_to_do(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEASEHOLD_TABLE_NAME", raising=False)
    with pytest.raises(InvalidRequest, match="give a client, or set LEASEHOLD_TABLE_NAME"):
        without_client({})
    assert made == []


@pytest.mark.parametrize(("begins_anew", "status"), [(True, 0), (False, -signal.SIGALRM)])
def test_a_child_that_is_forked_while_a_client_is_made_can_make_its_own(
    monkeypatch: pytest.MonkeyPatch, *, begins_anew: bool, status: int
) -> None:
    monkeypatch.setenv("LEASEHOLD_TABLE_NAME", "locks")
    making = default_clients._making  # noqa: SLF001 - the moment in which it is held is short
    if not begins_anew:
        monkeypatch.setattr(making, "begin_anew", lambda: None)
    with making.lock:  # As a thread of the parent that the child does not have.
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(1)
            default_clients.default_client(heartbeats=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
