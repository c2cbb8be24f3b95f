"""`@locked`: what can be decorated, what a call is given, and which client it uses.

tests/contracts/client/test_locked.py says what functions and coroutine functions promise alike.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
import warnings
from typing import Any

import pytest

from fairlock import AsyncLockClient, InvalidRequest, Lock, LockClient, LockWaitTimeout, locked
from fairlock.decorator import default_clients
from fairlock.testing import FakeAsyncLockClient, ManualClock
from tests.support import LambdaContextStub
from tests.unit.client.doubles import AsyncTable, Table


def test_a_parameter_named_lock_gets_the_lock_and_callers_do_not_see_it(locks: LockClient) -> None:
    @locked("a", client=locks)
    def work(number: int, lock: Lock | None = None) -> tuple[int, str]:
        assert lock is not None
        lock.check()
        return number, lock.name

    @locked("a", client=locks)
    def other(*, lock: Lock) -> str:
        return lock.name

    assert work(3) == (3, "a")
    assert other() == "a"  # type: ignore[call-arg]  # it gets a lock
    assert [*inspect.signature(work).parameters] == ["number"]
    with pytest.raises(TypeError):
        work(3, lock=None)


def test_methods_and_the_functions_name_stay_as_they_are(locks: LockClient, table: Table) -> None:
    class Account:
        number = 12

        @locked("accounts/{self.number}", client=locks)
        def debit(self) -> int:
            """Takes money."""
            return table.state("accounts/12").held

        @staticmethod
        @locked("all", client=locks)
        def audit() -> int:
            return table.state("all").held

        @classmethod
        @locked("{cls.__name__}", client=locks)
        def close(cls) -> int:
            return table.state("Account").held

    assert (Account().debit(), Account.audit(), Account.close()) == (1, 1, 1)
    assert (Account.debit.__name__, Account.debit.__doc__) == ("debit", "Takes money.")


def test_a_wrong_call_is_a_type_error_before_any_write(locks: LockClient, table: Table) -> None:
    @locked("orders/{order_id}", client=locks)
    def charge(order_id: int) -> int:
        return order_id

    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        charge()  # type: ignore[call-arg]  # that is wrong
    assert table.requests == []


def generator() -> Any:  # noqa: ANN401 - never called
    yield


def lock_first(lock: Lock, number: int) -> None: ...


def positional_lock(number: int, lock: Lock, /) -> None: ...


def test_a_coroutine_of_a_plain_function_is_refused(locks: LockClient, table: Table) -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(table.state("a").held)

    def plain() -> object:
        return work()

    with pytest.raises(InvalidRequest, match="function: must be a coroutine function"):
        locked("a", client=locks)(plain)()
    assert (ran, table.state("a").held) == ([], 0)
    with pytest.raises(StopIteration):
        work().send(None)
    assert ran == [0]  # The control: what it would have seen.


@pytest.mark.parametrize(
    ("arguments", "function", "field"),
    [
        ({"if_taken": "skip", "max_wait": 3}, len, "max_wait"),
        ({"max_wait": -3}, len, "max_wait"),
        ({}, generator, "function"),
        ({}, 7, "function"),
        ({}, lock_first, "lock"),
        ({}, positional_lock, "lock"),
        ({"lease": 0}, len, "lease"),
        ({"limit": 101}, len, "limit"),
        ({"only_newest": 7, "if_taken": "skip"}, len, "only_newest"),
        *(({"reentrant": wrong}, len, "reentrant") for wrong in (None, 1, "yes")),
        *(
            ({"max_hold": wrong}, len, "max_hold")
            for wrong in (0, -1, math.inf, math.nan, "30", True)
        ),
    ],
)
def test_what_cannot_be_locked_so_is_refused_when_it_is_decorated(
    arguments: dict[str, Any],
    function: Any,  # noqa: ANN401 - odd things
    field: str,
    locks: LockClient,
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        locked("a", client=locks, **arguments)(function)
    assert refused.value.field == field


async def test_a_client_of_the_wrong_kind_is_refused(locks: LockClient) -> None:
    async def work() -> None: ...

    def plain() -> None: ...

    with pytest.raises(InvalidRequest, match="must be an AsyncLockClient"):
        await locked("a", client=locks)(work)()
    with pytest.raises(InvalidRequest, match="must be a LockClient"):
        locked("a", client=FakeAsyncLockClient())(plain)()


def test_a_function_that_is_decorated_twice_holds_both(locks: LockClient, table: Table) -> None:
    def held() -> list[int]:
        return [table.state(name).held for name in "ab"]

    @locked("a", client=locks)
    @locked("b", client=locks, if_taken="raise")
    def move(*, lock: Lock | None = None) -> tuple[str, list[int]]:
        return lock.name if lock else "", held()

    with locks.hold("b", owner_name="other"), pytest.raises(LockWaitTimeout, match="'b'"):
        move()
    assert held() == [0, 0], "the first one is given back"
    assert (move(), held()) == (("b", [1, 1]), [0, 0])


# Default clients: made when they are needed, for what the call needs.


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, table: Table, clock: ManualClock) -> list[dict[str, Any]]:
    """The settings of the clients that are made by themselves."""
    settings: list[dict[str, Any]] = []

    def make(table_name: str, **given: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        settings.append({"table_name": table_name, **given})
        stand_ins: dict[str, Any] = {"client": table, "clock": clock, "heartbeat_every": math.inf}
        return LockClient(table_name, **{**stand_ins, **given})

    monkeypatch.setattr(default_clients, "LockClient", make)
    monkeypatch.setattr(default_clients, "_clients", {})
    return settings


@pytest.mark.parametrize(
    ("how", "arguments", "expected"),
    [
        ({}, ({},), {}),
        ({"if_taken": "skip"}, ({},), {}),
        ({"if_taken": "raise"}, ({},), {}),
        ({"lease": 20}, ({}, LambdaContextStub()), {}),
        ({}, ({}, LambdaContextStub()), {"heartbeat_every": math.inf, "safe_period": 0.05}),
    ],
    ids=["waits", "skip", "raise", "Lambda with a lease", "Lambda"],
)
def test_a_client_is_made_from_the_environment_at_the_first_call_and_reused(
    how: dict[str, Any],
    arguments: tuple[Any, ...],
    expected: dict[str, Any],
    made: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not before it: Lambda SnapStart copies what an import leaves behind.

    Only a call in Lambda without a lease gets one without heartbeats.
    """
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    call = locked("deploy", **how)(lambda _event, _context=None: "done")
    assert made == []
    for _ in range(2):
        assert call(*arguments) == "done"
    assert made == [{"table_name": "locks", **expected}]


def test_without_a_client_and_a_table_name_the_call_says_what_to_do(
    made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    with pytest.raises(InvalidRequest, match="give a client, or set FAIRLOCK_TABLE_NAME"):
        locked("deploy")(lambda: None)()
    assert made == []


def test_clients_made_for_a_loop_are_closed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncLockClient] = []

    def make(name: str, **settings: Any) -> AsyncLockClient:  # noqa: ANN401 - as of the client
        client = AsyncLockClient(name, client=AsyncTable(), **settings)
        made.append(client)
        return client

    @locked("a")
    async def work() -> bool:
        return made[-1]._closed  # noqa: SLF001 - the question

    async def twice() -> list[bool]:
        return [await work(), await work()]

    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setattr("fairlock.aio.AsyncLockClient", make)
    gc.collect()  # What earlier tests have left would warn in this one.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in (1, 2):
            assert asyncio.run(twice()) == [False, False]
            assert [client._closed for client in made] == [True] * number  # noqa: SLF001 - same
        gc.collect()
    assert len(default_clients._loops) == 0  # noqa: SLF001 - nothing of them is left
