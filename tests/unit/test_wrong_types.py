"""Each argument of each public function refuses what it cannot use, by its own name.

None of the values in `WRONG` is right for any argument, so no table of expectations is needed: a
new argument without a check fails here. Constructs of the CDK have theirs in tests/unit/cdk.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial, wraps
from itertools import product
from typing import Any
from unittest import mock

import pytest

from fairlock import InvalidRequest, Lock, LockClient, create_table, locked, optimistic
from fairlock.aio import AsyncLock, AsyncLockClient
from fairlock.client.arguments import ClientOptions
from fairlock.durable import LockFunctions, hold
from fairlock.guarded import FenceCondition, GuardedWrites, condition_check, fence_condition
from fairlock.optimistic import RetryBudget
from fairlock.testing import (
    FakeAsyncLockClient,
    FakeLockClient,
    FakeTable,
    ManualClock,
    run_in_virtual_time,
    used_by_locked_functions,
)
from fairlock.wire import rules

WRONG: dict[str, Any] = {
    "bytes": b"x",
    "a date": datetime(2030, 3, 17, tzinfo=UTC),
    "a Decimal": Decimal("2.5"),
    "NaN": math.nan,
    "a negative number": -1,
    "a list": [],
    "a set": {7},
    "an object": object(),
}
OWNER_ID = "o" * 16
GRANT = {"lock_name": "a", "owner_id": OWNER_ID, "fencing_token": 5}
WRITE: Any = {"Put": {"TableName": "orders", "Item": {"id": {"S": "7"}}}}
CHANGE: Any = dict
TABLE: Any = mock.Mock(spec=["get_item", "put_item", "delete_item", "table_name"])
SERVICE = mock.Mock(spec=["acquire", "release"])
Call = Callable[..., object]
UNUSED = {
    "FakeLockClient.from_stack": {"session"},
}
"""A fake reads nothing, and needs no session."""


@wraps(RetryBudget)
def call_with_budget(**options: Any) -> None:  # noqa: ANN401 - mistakes are no types
    """A budget is checked where it is given: each request of our own makes one."""
    optimistic.read(TABLE, {"id": "7"}, retry_budget=RetryBudget(**options))


@wraps(locked)
def call_locked(name: Any, **options: Any) -> None:  # noqa: ANN401 - mistakes are no types
    """Decorates a function, and calls it."""
    locked(name, **options)(lambda: None)()


METHODS: dict[str, dict[str, Any]] = {
    # What each public method of a client needs at least.
    "acquire": {"name": "a"},
    "try_acquire": {"name": "a"},
    "hold": {"name": "a"},
    "hold_all": {"names": ["a", "b"]},
    "lead": {"name": "a"},
    "adopt": {"name": "a", "owner_id": OWNER_ID},
    "release": {"name": "a", "owner_id": OWNER_ID},
    "describe": {"name": "a"},
    "list": {},
    "force_release": {"name": "a", "fencing_token": 5, "reason": "r"},
    "set_limit": {"name": "a", "limit": 2, "reason": "r"},
    "pause": {"name": "a", "reason": "r"},
    "resume": {"name": "a"},
    "empty_queue": {"name": "a"},
    "pace": {"name": "a", "rate": (1, 1)},
    "longest_wait": {},
    "close": {},
}
OF_A_LOCK: dict[str, dict[str, Any]] = {
    "heartbeat": {},
    "transact_write": {"items": [WRITE]},
    "fence_condition": {},
}
FUNCTIONS: dict[str, tuple[Call, dict[str, Any]]] = {
    "LockClient": (LockClient, {"table_name": "locks"}),
    "AsyncLockClient": (AsyncLockClient, {"table_name": "locks"}),
    "LockClient.from_stack": (LockClient.from_stack, {"stack_name": "Fairlock"}),
    "create_table": (create_table, {"client": mock.Mock(), "name": "locks"}),
    "locked": (call_locked, {"name": "a", "client": FakeLockClient()}),
    "optimistic.update": (
        optimistic.update,
        {"table": TABLE, "key": {"id": "7"}, "change": CHANGE},
    ),
    "optimistic.read": (optimistic.read, {"table": TABLE, "key": {"id": "7"}}),
    "optimistic.put": (
        optimistic.put,
        {"table": TABLE, "key": {"id": "7"}, "item": {}, "seen": None},
    ),
    "optimistic.delete": (optimistic.delete, {"table": TABLE, "key": {"id": "7"}, "seen": {}}),
    "RetryBudget": (call_with_budget, {}),
    "condition_check": (condition_check, {"table_name": "locks", **GRANT}),
    "fence_condition": (fence_condition, {"fencing_token": 5}),
    "FenceCondition": (FenceCondition, {"fencing_token": 5}),
    "GuardedWrites": (GuardedWrites, {"client": FakeTable(), "table_name": "locks", **GRANT}),
    "durable.hold": (hold, {"context": mock.Mock(), "name": "a", "service": SERVICE}),
    "LockFunctions": (LockFunctions, {"acquire_function": "a", "release_function": "b"}),
    "FakeLockClient": (FakeLockClient, {}),
    "FakeAsyncLockClient": (FakeAsyncLockClient, {}),
    "FakeLockClient.from_stack": (FakeLockClient.from_stack, {"stack_name": "Fairlock"}),
    "ManualClock.advance": (ManualClock().advance, {"seconds": 1}),
    "ManualClock.stall": (ManualClock().stall, {"seconds": 1}),
    "ManualClock.at": (ManualClock().at, {"seconds": 1, "action": print}),
    "run_in_virtual_time": (run_in_virtual_time, {"main": None}),
    "used_by_locked_functions": (
        lambda client: used_by_locked_functions(client).__enter__(),
        {"client": None},
    ),
}


def arguments_of(function: Call) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


async def not_refused(
    call: Callable[..., Awaitable[object]], base: Mapping[str, Any], arguments: Iterable[str]
) -> list[str]:
    """What happened instead where an argument was not refused by its own name."""
    odd: list[str] = []
    for argument, (label, value) in product(arguments, WRONG.items()):
        told = "accepted"
        try:
            await call(**{**base, argument: value})
        except InvalidRequest as error:
            told = "" if error.field == argument and error.rule else f"InvalidRequest: {error}"
        except Exception as error:  # noqa: BLE001 - the test tells which it was
            told = f"{type(error).__name__}: {error}"
        if told:
            odd.append(f"{argument} = {label}: {told}")
    return odd


def of_a_function(function: Call, base: Mapping[str, Any], arguments: Iterable[str]) -> list[str]:
    async def call(**named: Any) -> None:  # noqa: ANN401 - mistakes are no types
        function(**named)

    return asyncio.run(not_refused(call, base, arguments))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
def test_a_function_refuses_a_wrong_type_by_the_name_of_the_argument(name: str) -> None:
    function, base = FUNCTIONS[name]
    arguments = arguments_of(function)
    if "settings" in arguments:
        arguments = [*arguments, *ClientOptions.__annotations__]
    arguments = [each for each in arguments if each not in {"settings", *UNUSED.get(name, ())}]
    assert of_a_function(function, base, arguments) == []


def work(_lock: object, _stop: object) -> None:
    """It does not begin."""


async def work_async(_lock: object, _stop: object) -> None:
    """It does not begin."""


WORK: dict[type, Call] = {FakeLockClient: work, FakeAsyncLockClient: work_async}


async def done(made: Any) -> Any:  # noqa: ANN401 - of either client
    return await made if inspect.isawaitable(made) else made


@pytest.mark.parametrize("kind", WORK)
@pytest.mark.parametrize("method", [*METHODS, *OF_A_LOCK])
def test_a_client_and_a_lock_refuse_a_wrong_type_by_the_name_of_the_argument(
    kind: type, method: str
) -> None:
    async def scene() -> None:
        locks = kind()
        lock = await done(locks.acquire("held"))
        requests = [*locks.table.requests]
        of = lock if method in OF_A_LOCK else locks

        async def call(**named: Any) -> None:  # noqa: ANN401 - mistakes are no types
            made = getattr(of, method)(**named)
            if method == "list":
                made = next(made) if kind is FakeLockClient else anext(made)
            elif method in {"hold", "hold_all"}:
                made = made.__enter__() if kind is FakeLockClient else made.__aenter__()
            await done(made)

        base = {**METHODS, **OF_A_LOCK}[method] | ({"work": WORK[kind]} if method == "lead" else {})
        arguments = arguments_of(getattr(type(of), method))
        assert await not_refused(call, base, arguments) == []
        lock.check()
        assert locks.table.requests == requests
        await done(locks.close())

    asyncio.run(scene())


def test_a_wait_for_a_loss_refuses_a_wrong_timeout() -> None:
    """A negative one is over at once, as for every event of Python."""
    with FakeLockClient() as locks, locks.hold("a") as lock:
        wait: Any = lock.lost.wait
        assert of_a_function(wait, {}, ["timeout"]) == ["timeout = a negative number: accepted"]
        assert not wait(timedelta(seconds=3))


def test_every_public_method_is_tried() -> None:
    assert {*METHODS, "from_stack"} == callables_of(LockClient) == callables_of(AsyncLockClient)
    without_arguments = {"check", "condition_check", "release"}
    assert {*OF_A_LOCK, *without_arguments} == callables_of(Lock) == callables_of(AsyncLock)


def callables_of(kind: type) -> set[str]:
    return {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_without_its_check_an_argument_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "require", lambda *_told: None)
    base = {"fencing_token": 5}
    assert len(of_a_function(fence_condition, base, ["attribute"])) == len(WRONG)


UNKNOWN: dict[str, tuple[Call, str]] = {
    # A call with an argument that there is not, and what to write instead.
    "Lock.heartbeat": (lambda **o: FakeLockClient().acquire("a").heartbeat(**o), "use lease"),
    "Lock.transact_write": (
        lambda **o: FakeLockClient().acquire("a").transact_write([WRITE], **o),
        "use one of token, release",
    ),
    "create_table": (partial(create_table, FakeTable(), "a"), "use one of point_in_time_recovery"),
    "optimistic.update": (partial(optimistic.update, TABLE, {}, CHANGE), "use one of version_attr"),
    "fence_condition": (partial(fence_condition, 5), "use one of attribute"),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.filterwarnings("ignore:lock .* was dropped:ResourceWarning")
def test_an_argument_that_there_is_not_is_refused_by_its_name(name: str) -> None:
    call, text = UNKNOWN[name]
    with pytest.raises(InvalidRequest, match=f"^ttl: is no argument; {text}"):
        call(ttl=3)
    gc.collect()
