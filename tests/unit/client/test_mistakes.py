"""What people get wrong in Python: the error names the field, the rule and the next step.

The list is that of newcomers who tried; each row was once made by hand. What only breaks a rule of
a field is in tests/contracts/test_rules.py.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import logging
import math
import pickle
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, create_autospec

import boto3
import pytest

from fairlock import (
    InvalidRequest,
    LockClient,
    LockStoreMisconfigured,
    composite_name,
    create_table,
    locked,
    optimistic,
)
from fairlock.client import arguments
from fairlock.testing import FakeAsyncLockClient, FakeLockClient, FakeTable
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* was never (acquired|awaited):RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:lock .* was dropped:ResourceWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def what_was_dropped_is_pointed_out_here() -> Iterator[None]:
    """And not in another file."""
    yield
    gc.collect()


def fake(**settings: Any) -> Any:  # noqa: ANN401 - mistakes are no types
    return FakeLockClient(**settings)


def real(table: Any = TABLE, **settings: Any) -> Any:  # noqa: ANN401 - same
    return LockClient(table, clock="system", heartbeat_every=math.inf, **settings)


def no_arguments() -> None:
    """What a callback must not be."""


async def later(_lock: object, _reason: object = "") -> None:
    """What a client without an event loop cannot call."""


class Job:
    """Is no function; its objects are called like coroutine functions."""

    async def __call__(self, _lock: object, _stop: object) -> None: ...


# Arguments of `acquire`, and what the error says of them.

ACQUIRE: list[tuple[str, dict[str, Any]]] = [
    ("of UTF-8: make it text, by str(…) in Python and $string(…) in JSONata (got 7)", {"name": 7}),
    ("and has 600: shorten it, or use a hash of", {"name": "x" * 600}),
    ("begin or end with a space: remove it, as strip() does", {"name": "customer/7 "}),
    ("blank character U+00A0 at position 2: use a plain space", {"name": "a\u00a0b"}),
    ("in NFC: pass it through unicodedata.normalize('NFC', …)", {"name": "cafe\u0301"}),
    ("contain U+E000, which is unassigned or private: remove it", {"name": "a\ue000"}),
    ("name: must not start with $., a JSONPath or JSONata expression that", {"name": "$.id"}),
    ("must not start with $$., a JSONPath or", {"name": "$$.Execution.Id"}),
    ("must not contain {%, a JSONPath or JSONata", {"name": "a/{% $states.input.id %}"}),
    ("must not contain the address of an object: pass its id", {"name": f"customer/{object()}"}),
    ("from 1 to 100; pass a number, not text (got text of 1 character)", {"limit": "5"}),
    ("from 1 to 43200 (12 h); for longer work, let heartbeats renew it", {"lease": 46800}),
    ("let heartbeats renew it; pass a number, not text (got text of 2", {"lease": "30"}),
    ("renew it; pass int(…) or float(…) of a Decimal (got a value of", {"lease": Decimal(30)}),
    ("max_wait: must be a number of seconds from 0 to 604800 (7 days); 0", {"max_wait": -1}),
    ("0 does not wait; pass a number, not text (got text of 1 character)", {"max_wait": "5"}),
    ("timeout: is no argument; use max_wait (got 3)", {"timeout": 3}),
    ("use max_wait=0, or try_acquire, which does not wait (got False)", {"blocking": False}),
    ("leese: is no argument; use lease (got 3)", {"leese": 3}),
    ("is no argument; use hold(…, reentrant=True) (got True)", {"reentrant": True}),
    ("has 3008 bytes: store the rest elsewhere, and put", {"data": {"x": "y" * 3000}}),
    ("pass str(…) of a date or a set, int(…) or float(…) of", {"data": {"at": timedelta(7)}}),
    ("on_lost: must be a function of lock and reason: lambda", {"on_lost": no_arguments}),
    ("on_lost: must be a plain function: no event loop would run", {"on_lost": later}),
]


def is_told_of(told: pytest.ExceptionInfo[Exception], text: str) -> bool:
    """Whether an error has a text, and begins with its field and its rule."""
    error = told.value
    if isinstance(error, InvalidRequest):
        assert str(error).startswith(f"{error.field}: {error.rule}")
    return text in str(error)


# Other calls, in memory.


NOTHING: Any = None
LATER: Any = later
UNTYPED: Any = LockClient
decorate: Any = locked


def resource() -> Any:  # noqa: ANN401 - boto3's
    return boto3.resource("dynamodb", region_name="us-east-1")


def released() -> Any:  # noqa: ANN401 - a lock
    lock = fake().acquire("a")
    lock.release()
    return lock


def decorated(function: Any = None, **options: Any) -> None:  # noqa: ANN401 - same
    decorate("a", **{"client": fake(), **options})(function)


def enter(thing: Any) -> None:  # noqa: ANN401 - whatever is no context manager
    with thing:
        pass


def async_with(thing: Any) -> None:  # noqa: ANN401 - whatever is no async context manager
    async def work() -> None:
        async with thing:
            pass

    asyncio.run(work())


def with_asyncio(call: Callable[[Any, Any], object]) -> None:
    """Calls something with a client, and with a lock of its."""

    async def work() -> None:
        locks: Any = FakeAsyncLockClient()
        call(locks, await locks.acquire("a"))

    asyncio.run(work())


AWAIT = "which has not run yet: write `await` before it"
NO_TABLE = "table of a stack make the client by from_stack (got "
A_CLIENT = 'must be a client, as boto3.client("dynamodb") makes it, and no resource'
A_FUNCTION = "work: must be a function; AsyncLockClient.lead takes a coroutine"
BY_NAME = "arguments: must be given by name: "
MISTAKES: list[tuple[str, Callable[[], object]]] = [
    *((text, partial(fake().acquire, **{"name": "a", **given})) for text, given in ACQUIRE),
    (f"{NO_TABLE}'Fairlock-LocksTable…')", lambda: LockClient("Fairlock-LocksTable…")),
    (f"{NO_TABLE}dynamodb.Table(name=", lambda: real(resource().Table(TABLE))),
    (f"client: {A_CLIENT}", lambda: real(client=resource())),
    (f"client: {A_CLIENT}", lambda: create_table(resource(), "d")),
    ('pass a client as LockClient("locks", client', lambda: real(resource().meta.client)),
    ('pass a client as LockClient("locks", client', lambda: real(FakeTable())),
    ("this one is a client of locks, so use it itself", lambda: real(client=fake())),
    ("a value that is not missing or empty (got No", lambda: composite_name("customer", NOTHING)),
    ("value that is not missing or empty (got '')", lambda: composite_name("customer", "")),
    (f"{BY_NAME}acquire(name, lease=30)", lambda: fake().acquire("a", 30)),
    (f"{BY_NAME}hold(name, lease=30, max_wait=…)", lambda: fake().hold("a", 30, "ten")),
    (f'{BY_NAME}hold_all(["a", "b"], …), one list of', lambda: fake().hold_all("a", "b")),
    (f"{BY_NAME}close(release=1)", lambda: fake().close(1)),
    (f"{BY_NAME}locked(name, if_taken=…)", lambda: decorate("a", "skip")),
    ("decorate the function once for each", lambda: decorate(["b", "a"])(no_arguments)),
    ("to bottom in the order of sorted(names), or", lambda: decorate({"b", "a"})(no_arguments)),
    ("use acquire or hold, which wait (got 5)", lambda: fake().try_acquire("a", max_wait=5)),
    ("release takes no arguments (got True)", lambda: released().release(force=True)),
    ("release: must be True or False (got text of 2", lambda: fake().close(release="no")),
    ("with: must be `async with` for AsyncHold", lambda: enter(FakeAsyncLockClient().hold("a"))),
    ("must be `with` for Hold; for asyncio see Async", lambda: async_with(fake().hold("a"))),
    ("must be `with` for FakeLockClient; for asyncio", lambda: async_with(fake())),
    (f"try_acquire(…), {AWAIT}", lambda: with_asyncio(lambda c, _: bool(c.try_acquire("b")))),
    (f"acquire(…), {AWAIT}", lambda: with_asyncio(lambda c, _: c.acquire("b").release())),
    (f"before acquire(…), {AWAIT}", lambda: async_with(FakeAsyncLockClient().acquire("a"))),
    (f"before release(…), {AWAIT}", lambda: with_asyncio(lambda _, a: bool(a.release()))),
    ("ask is_set(), as in `if lock.lost.is_set()", lambda: bool(fake().acquire("a").lost)),
    ("ask is_set(), as in `if lock.lost.is_set()", lambda: with_asyncio(lambda _, a: bool(a.lost))),
    ("write `@locked(name, client=locks)` instead", lambda: fake().hold("a")(later)),
    ('if_taken: must be "wait", "skip" or "raise"', lambda: decorated(if_taken="ignore")),
    ('otherwise: goes with if_taken="skip" only', lambda: decorated(otherwise=3)),
    ("timeout: is no argument; use max_wait (got 3)", lambda: decorated(timeout=3)),
    ("client: must be a LockClient, an AsyncLockClient", lambda: decorated(client="locks")),
    ("as in client=lambda: locks (got <class", lambda: decorated(client=FakeLockClient)),
    ("as it is no coroutine function", lambda: decorated(len, client=FakeAsyncLockClient())),
    ("as it is a coroutine function", lambda: decorated(later)),
    ("no class: decorate the methods that do the work", lambda: decorated(Job)),
    ("no class: decorate the methods that do the work", lambda: locked(Job)),
    ("on_event: must be a function of event: lambda", lambda: fake(on_event=no_arguments)),
    ("on_event: must be a plain function: no event", lambda: fake(on_event=later)),
    ("region: is no argument; use session=boto3.Session", lambda: real(region="eu-central-1")),
    ("region_name: is no argument; use session", lambda: UNTYPED.from_stack("F", region_name="x")),
    ("sesion: is no argument; use session (got a value", lambda: real(sesion=boto3.Session())),
    ("is no argument; use one of session, client,", lambda: real(takeover="observed")),
    ("must say whose grant is to end; `describe`", lambda: fake().force_release("a", reason="r")),
    ("reason: is required: force_release(name, holder", lambda: fake().force_release("a")),
    ("release(name, owner_id); a Lock has lock.rele", lambda: fake().release("a")),
    ("release(name, owner_id); a Lock has lock.rele", lambda: fake().release(released())),
    ("proves ownership: pass lock.owner_id", lambda: fake().release("a", released())),
    ("proves ownership: pass lock.owner_id", lambda: fake().adopt("a", released())),
    ("work: must be a function that takes the lock and", lambda: fake().lead("a", None)),
    ("work: must take two arguments: the lock, and the", lambda: fake().lead("a", no_arguments)),
    ("work: must take two arguments", lambda: fake().lead("a", lambda _a, _b, _c: None)),
    *((A_FUNCTION, partial(fake().lead, "a", work)) for work in (later, partial(later), Job())),
    ("safe_period: must be below 6.46 with a lease of", lambda: fake(safe_period=20, lease=10)),
    ("heartbeat_every: must be below 6.46 with a lea", lambda: fake(heartbeat_every=20, lease=10)),
    ("at least 23.82 s (got 10)", lambda: fake(safe_period=20).acquire("a", lease=10)),
]


@pytest.mark.parametrize(("text", "make"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_a_mistake_names_field_rule_and_next_step(text: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest) as told:
        make()
    assert is_told_of(told, text)


# Mistakes that boto3 and DynamoDB notice first.

WRITE = {"Put": {"TableName": "orders", "Item": {"id": {"S": "7"}}}}
RAW = {"Put": {"TableName": "orders", "Item": {"id": 7}}}
KEY, HALF = {"id": "7"}, {"id": 0.5}


@dataclass
class Desk:
    """What a newcomer has in front of them: a client of DynamoDB."""

    dynamodb: Any

    def other(self, name: str) -> str:
        """A table that is none of locks."""
        self.dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        return name

    def items(self) -> Any:  # noqa: ANN401 - a table, which a mistake may be about
        return resource().Table(self.other("items"))

    def in_region(self, region: str) -> LockClient:
        session = boto3.Session(region_name=region)
        return LockClient(TABLE, clock="system", session=session)

    def write(self, items: Any, **options: Any) -> None:  # noqa: ANN401 - same
        real().acquire("a").transact_write(items, **options)


def half(_item: object) -> dict[str, Any]:
    return {"share": 0.5}


@pytest.fixture
def desk(fresh_dynamodb: DynamoDBClient) -> Desk:
    return Desk(fresh_dynamodb)


NO_SUCH = "in {}: there is no such table; check its name, account and region"
WRONG_SETUP: list[tuple[str, Callable[[Desk], object]]] = [
    (f"lock table 'nope' {NO_SUCH.format('us-east-1')}", lambda _: real("nope").acquire("a")),
    ("the table of a stack is made by from_stack", lambda _: real("Fairlock").acquire("a")),
    (NO_SUCH.format("eu-central-1"), lambda d: d.in_region("eu-central-1").acquire("a")),
    ("was refused; check that each table", lambda d: d.write([WRITE])),
    ("with the string keys pk and sk?", lambda d: real(d.other("b")).acquire("a")),
]
INVALID: list[tuple[str, Callable[[Desk], object]]] = [
    ("items: must be a list of writes, as for boto3's transact_write", lambda d: d.write(WRITE)),
    ("items: must be a valid transaction of values such as {'S': 'te", lambda d: d.write([RAW])),
    ("release: must be true or false (got text of 2 ch", lambda d: d.write([WRITE], release="no")),
    ("sk: choose another name", lambda d: create_table(d.dynamodb, d.other("c"))),
    ("must have values that boto3 takes", lambda d: optimistic.update(d.items(), KEY, half)),
    ("Float types are not supported. Use De", lambda d: optimistic.read(d.items(), HALF)),
    ('boto3.resource("dynamodb").Table(name)', lambda d: optimistic.read(d.dynamodb, KEY)),
    ("change: must be a plain function of", lambda d: optimistic.update(d.items(), KEY, LATER)),
]


BESIDE_DYNAMODB = [*WRONG_SETUP, *INVALID]


@pytest.mark.parametrize(
    ("text", "make"), BESIDE_DYNAMODB, ids=[text[:60] for text, _ in BESIDE_DYNAMODB]
)
def test_a_mistake_beside_dynamodb_is_told_with_the_next_step(
    desk: Desk, text: str, make: Callable[[Desk], object]
) -> None:
    kind = InvalidRequest if (text, make) in INVALID else LockStoreMisconfigured
    with pytest.raises(kind) as told:
        make(desk)
    assert is_told_of(told, text)


def test_the_arn_of_a_table_names_it(desk: Desk) -> None:
    table = desk.dynamodb.describe_table(TableName=TABLE)["Table"]
    with real(table["TableArn"]).hold("a") as lock:
        lock.check()


# What only looks like a lock, a call, or a client.


def test_a_call_may_be_awaited_by_a_task_and_in_a_group() -> None:
    async def work() -> list[str]:
        locks = FakeAsyncLockClient()
        first = await asyncio.create_task(locks.acquire("a"))
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            second = group.create_task(locks.acquire("b"))
        third = await asyncio.wait_for(locks.acquire("c"), 5)
        [fourth] = await asyncio.gather(locks.acquire("d"))
        return [lock.name for lock in (first, second.result(), third, fourth)]

    assert asyncio.run(work()) == ["a", "b", "c", "d"]


def test_what_asks_whether_it_has_to_await_is_told_so() -> None:
    """A framework that is told otherwise takes the coroutine for the answer: it runs nothing."""

    async def work() -> None:
        locks = FakeAsyncLockClient()
        assert asyncio.iscoroutinefunction(locks.release)
        assert inspect.iscoroutinefunction(locks.release) is (sys.version_info >= (3, 12))
        call = locks.acquire("a")
        assert inspect.iscoroutine(call)
        assert asyncio.iscoroutine(call)
        assert inspect.isawaitable(call)
        assert inspect.getcoroutinestate(call) == inspect.CORO_CREATED
        assert asyncio.iscoroutinefunction((await call).release)
        assert isinstance(create_autospec(locks).acquire, AsyncMock)

    asyncio.run(work())


def test_tracebacks_logs_and_copies_show_the_class_that_the_documents_name() -> None:
    hold = fake().hold("a")
    with pytest.raises(InvalidRequest) as told:
        hold.fencing_token  # noqa: B018 - the mistake
    shown = traceback.format_exception_only(told.value)[0]
    assert shown.startswith("fairlock.errors.InvalidRequest: with: must enter this block first")
    assert type(told.value).__name__ == "InvalidRequest"
    for again in (copy.copy(told.value), pickle.loads(pickle.dumps(told.value))):  # noqa: S301 - our own
        assert type(again) is InvalidRequest
        assert (str(again), again.field) == (str(told.value), "with")


@pytest.mark.parametrize("kind", [FakeLockClient, FakeAsyncLockClient])
def test_a_framework_that_awaits_what_it_can_leaves_a_client_as_it_is(kind: type[Any]) -> None:
    assert not inspect.isawaitable(kind())


def test_hasattr_copies_and_debuggers_see_no_such_attribute_of_a_hold() -> None:
    """An error that is none of AttributeError would break `hasattr`, copies and debuggers."""
    hold = fake().hold("a")
    assert [hasattr(hold, name) for name in ("release", "no_such", "__len__")] == [False] * 3
    assert inspect.getdoc(hold)
    assert inspect.getattr_static(hold, "release", None) is None
    with pytest.raises(AttributeError, match=r"^'Hold' object has no attribute 'no_such'$"):
        hold.no_such  # noqa: B018 - the question
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.deepcopy(hold)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (f"customer/{None}", "'None'"),
        (f"customer/{math.nan}", "'nan'"),
        ("customer/", "''"),
        ("customer//order", "''"),
        ("customer/{customer_id}", "'{customer_id}'"),
    ],
)
def test_a_name_that_was_formatted_from_no_value_is_logged_once(
    caplog: pytest.LogCaptureFixture, name: str, part: str
) -> None:
    """It is no error: a customer may be called Null."""
    arguments.warn_of_missing_part.cache_clear()
    locks = fake()
    with caplog.at_level(logging.WARNING, "fairlock"):
        for _ in range(3):
            locks.acquire(name).release()
        for right in ("customer/Nonesuch", "https://example.com/7", "{0d1c-4e}", "a:b/c#d"):
            locks.acquire(right).release()
    [logged] = [each.getMessage() for each in caplog.records if "missing" in each.getMessage()]
    assert logged.startswith(f"lock {name!r}: its part {part} looks like a missing value")
    assert 'composite_name("customer", customer_id)' in logged


def test_a_type_error_inside_of_a_call_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what Python refuses before the first line is explained: later, something was written."""

    def fail(*_arguments: object) -> None:
        raise TypeError("an error of our own")

    locks = fake()
    monkeypatch.setattr(locks, "_acquire", fail)
    with pytest.raises(TypeError, match="an error of our own"):
        locks.acquire("a")
