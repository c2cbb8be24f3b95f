"""What people get wrong in Python: the error names the field, the rule and the next step.

The list is that of newcomers who tried; each row was once made by hand. Rows of `NO_ERRORS` were on
their list, and are right, or do what other lock libraries do.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import logging
import math
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, create_autospec

import boto3
import pytest

from fairlock import (
    ClientUnusable,
    FairlockError,
    InvalidRequest,
    LockClient,
    LockLost,
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

WRITE = {"Put": {"TableName": "orders", "Item": {"id": {"S": "7"}}}}
WEEK = timedelta(days=7)
RAW = {"Put": {"TableName": "orders", "Item": {"id": 7}}}


@dataclass
class Desk:
    """What a newcomer has in front of them: clients of a table in memory, and one of DynamoDB."""

    dynamodb: DynamoDBClient

    def fake(self, **settings: Any) -> Any:  # noqa: ANN401 - mistakes are no types
        return FakeLockClient(**settings)

    def real(self, table: Any = TABLE, **settings: Any) -> Any:  # noqa: ANN401 - same
        return LockClient(table, clock="system", heartbeat_every=math.inf, **settings)

    def released(self) -> Any:  # noqa: ANN401 - same
        lock = self.fake().acquire("a")
        lock.release()
        return lock

    def other(self, name: str) -> str:
        self.dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        return name


@pytest.fixture
def desk(fresh_dynamodb: DynamoDBClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    yield Desk(fresh_dynamodb)
    gc.collect()  # What was dropped is pointed out here, and not in another test.


def nested(desk: Desk) -> None:
    with (locks := desk.fake()).hold("a"), locks.hold("a"):
        pass


def recursive(desk: Desk) -> None:
    @locked("a", client=desk.fake())
    def work() -> None:
        work()

    work()


def formatted(desk: Desk, name: str, *arguments: object) -> None:
    @locked(name, client=desk.fake())
    def work(order: object) -> None:
        """Never called."""

    work(*arguments)


def closed(desk: Desk) -> None:
    locks = desk.fake()
    locks.close()
    locks.acquire("a")


def in_another_loop(_desk: Desk) -> None:
    locks: Any = FakeAsyncLockClient()
    for name in ("a", "b"):
        asyncio.run(locks.try_acquire(name))


def plain_with(_desk: Desk) -> None:
    locks: Any = FakeAsyncLockClient()
    with locks.hold("a"):
        pass


def async_with(thing: Any) -> None:  # noqa: ANN401 - whatever is no async context manager
    async def enter() -> None:
        async with thing:
            pass

    asyncio.run(enter())


async def later(_lock: object, _reason: object = "") -> None:
    """What a client without an event loop cannot call."""


def unawaited(call: Callable[[Any], object]) -> None:
    async def work() -> None:
        call(FakeAsyncLockClient())

    asyncio.run(work())


def unawaited_release() -> None:
    async def work() -> None:
        lock = await FakeAsyncLockClient().acquire("a")
        if lock.release():
            pass

    asyncio.run(work())


def lost_as_a_condition() -> None:
    async def work() -> None:
        lock = await FakeAsyncLockClient().acquire("a")
        if lock.lost:
            pass

    asyncio.run(work())


def in_region(region: str) -> LockClient:
    session = boto3.Session(region_name=region)
    return LockClient(TABLE, clock="system", session=session)


def items(desk: Desk) -> Any:  # noqa: ANN401 - a table, which a mistake may be about
    return boto3.resource("dynamodb").Table(desk.other("items"))


KEY, HALF = {"id": "7"}, {"share": 0.5}
Row = tuple[str, Callable[[Desk], object], type[FairlockError], str]
INVALID, WRONG_SETUP = InvalidRequest, LockStoreMisconfigured
MISTAKES: list[Row] = [
    # The mistake, how it is made, the error, and its text: field, rule and next step.
    ("1 wrong table name", lambda d: d.real("nope").acquire("a"), WRONG_SETUP,
     "lock table 'nope' in us-east-1: there is no such table; check its name, account and region"),
    ("1a a stack's name", lambda d: d.real("Fairlock").acquire("a"), WRONG_SETUP,
     "account and region; the client for the table of a stack is made by from_stack"),
    ("1b a placeholder", lambda _: LockClient("Fairlock-LocksTable…"), INVALID,
     "table of a stack make the client by from_stack (got 'Fairlock-LocksTable…')"),
    ("2 table name None", lambda _: LockClient(None), INVALID,
     "table_name: give the name of the lock table, set FAIRLOCK_TABLE_NAME to it, or make the"),
    ("3 no argument", lambda _: LockClient(), INVALID,
     "table_name: give the name of the lock table, set FAIRLOCK_TABLE_NAME to it, or make the"),
    ("4 a boto3 Table", lambda d: d.real(boto3.resource("dynamodb").Table(TABLE)), INVALID,
     "table of a stack make the client by from_stack (got dynamodb.Table(name="),
    ("6 a boto3 resource", lambda d: d.real(client=boto3.resource("dynamodb")), INVALID,
     'client: must be a client, as boto3.client("dynamodb") makes it, and no resource'),
    ("4a a client by position", lambda d: LockClient(d.dynamodb), INVALID,  # type: ignore[arg-type]  # the mistake
     'table_name: must be the name of the lock table: pass a client as LockClient("locks", client'),
    ("4b a fake table by position", lambda _: LockClient(FakeTable()), INVALID,  # type: ignore[arg-type]  # the mistake
     'table_name: must be the name of the lock table: pass a client as LockClient("locks", client'),
    ("6a a client of locks", lambda d: d.real(client=d.fake()), INVALID,
     "client: must be a client of DynamoDB: this one is a client of locks, so use it itself"),
    ("7 name None", lambda d: d.fake().acquire(None), INVALID,
     "name: must be a string of 1 to 512 bytes of UTF-8 (got None)"),
    ("8 name int", lambda d: d.fake().acquire(7), INVALID,
     "of UTF-8: make it text, by str(…) in Python and $string(…) in JSONata (got 7)"),
    ("9 name empty", lambda d: d.fake().acquire(""), INVALID,
     "name: must be a string of 1 to 512 bytes of UTF-8 (got text of 0 characters)"),
    ("10 name too long", lambda d: d.fake().acquire("x" * 600), INVALID,
     "name: must have at most 512 bytes of UTF-8, and has 600: shorten it, or use a hash of"),
    ("11 name with a trailing space", lambda d: d.fake().acquire("customer/7 "), INVALID,
     "name: must not begin or end with a space: remove it, as strip() does"),
    ("12 name with a newline", lambda d: d.fake().acquire("customer/\n7"), INVALID,
     "name: must not contain the control character U+000A at position 10: remove it"),
    ("12a name with a no-break space", lambda d: d.fake().acquire("a\u00a0b"), INVALID,
     "name: must not contain the blank character U+00A0 at position 2: use a plain space"),
    ("12b name not in NFC", lambda d: d.fake().acquire("cafe\u0301"), INVALID,
     "name: must be in NFC: pass it through unicodedata.normalize('NFC', …)"),
    ("12c name with a private character", lambda d: d.fake().acquire("a\ue000"), INVALID,
     "name: must not contain U+E000, which is unassigned or private: remove it"),
    ("13 a part None", lambda _: composite_name("customer", None), INVALID,  # type: ignore[arg-type]  # the mistake
     "parts: must be strings: pass str(part), and a value that is not missing or empty (got No"),
    ("13a a part that is empty", lambda _: composite_name("customer", ""), INVALID,
     "parts: must be strings: pass str(part), and a value that is not missing or empty (got '')"),
    ("13b a JSONPath expression", lambda d: d.fake().hold("$.id").__enter__(), INVALID,
     "name: must not start with $., a JSONPath or JSONata expression that was not evaluated: pas"),
    ("13c its context", lambda d: d.fake().acquire("$$.Execution.Id"), INVALID,
     "name: must not start with $$., a JSONPath or JSONata expression that was not evaluated"),
    ("13d a JSONata expression", lambda d: d.fake().acquire("a/{% $states.input.id %}"), INVALID,
     "name: must not contain {%, a JSONPath or JSONata expression that was not evaluated: pass"),
    ("13e an object", lambda d: d.fake().acquire(f"customer/{object()}"), INVALID,
     "name: must not contain the address of an object: pass its id"),
    ("14 limit 0", lambda d: d.fake().acquire("a", limit=0), INVALID,
     "limit: must be a whole number from 1 to 100 (got 0)"),
    ("15 limit '5'", lambda d: d.fake().acquire("a", limit="5"), INVALID,
     "limit: must be a whole number from 1 to 100; pass a number, not text (got text of"),
    ("16 limit 500", lambda d: d.fake().acquire("a", limit=500), INVALID,
     "limit: must be a whole number from 1 to 100 (got 500)"),
    ("17 lease 13 h", lambda d: d.fake().acquire("a", lease=46800), INVALID,
     "lease: must be a number of seconds from 1 to 43200 (12 h); for longer work, let heart"),
    ("19 lease '30'", lambda d: d.fake().acquire("a", lease="30"), INVALID,
     "let heartbeats renew it; pass a number, not text (got text of 2 characters)"),
    ("20 lease 0.5", lambda d: d.fake().acquire("a", lease=0.5), INVALID,
     "lease: must be a number of seconds from 1 to 43200"),
    ("22 wait -1", lambda d: d.fake().acquire("a", max_wait=-1), INVALID,
     "max_wait: must be a number of seconds from 0 to 604800 (7 days); 0 does not wait (got -1)"),
    ("23 wait inf", lambda d: d.fake().acquire("a", max_wait=float("inf")), INVALID,
     "max_wait: must be a number of seconds from 0 to 604800 (7 days); 0 does not wait (got inf)"),
    ("23a wait '5'", lambda d: d.fake().acquire("a", max_wait="5"), INVALID,
     "0 does not wait; pass a number, not text (got text of 1 character)"),
    ("24 timeout=", lambda d: d.fake().acquire("a", timeout=3), INVALID,
     "timeout: is no argument; use max_wait (got 3)"),
    ("25 blocking=False", lambda d: d.fake().acquire("a", blocking=False), INVALID,
     "blocking: is no argument; use max_wait=0, or try_acquire, which does not wait (got False)"),
    ("25a a misspelled argument", lambda d: d.fake().hold("a", leese=3), INVALID,
     "leese: is no argument; use lease (got 3)"),
    ("25b lease by position", lambda d: d.fake().acquire("a", 30), INVALID,
     "arguments: must be given by name: acquire(name, lease=30)"),
    ("25c more by position", lambda d: d.fake().hold("a", 30, "ten"), INVALID,
     "arguments: must be given by name: hold(name, lease=30, max_wait=…)"),
    ("25d names that are no list", lambda d: d.fake().hold_all("a", "b"), INVALID,
     'arguments: must be given by name: hold_all(["a", "b"], …), one list of all names'),
    ("25e close by position", lambda d: d.fake().close(1), INVALID,
     "arguments: must be given by name: close(release=1)"),
    ("25f locked by position", lambda _: locked("a", "skip"), INVALID,  # type: ignore[call-overload]  # the mistake
     "arguments: must be given by name: locked(name, if_taken=…)"),
    ("25g a wait of try_acquire", lambda d: d.fake().try_acquire("a", max_wait=5), INVALID,
     "max_wait: is no argument; use acquire or hold, which wait (got 5)"),
    ("25h acquire that is reentrant", lambda d: d.fake().acquire("a", reentrant=True), INVALID,
     "reentrant: is no argument; use hold(…, reentrant=True) (got True)"),
    ("25i release by force", lambda d: d.released().release(force=True), INVALID,
     "force: is no argument; release takes no arguments (got True)"),
    ("31 check after release", lambda d: d.released().check(), LockLost,
     "lock 'a': it was released; acquire it again for further work"),
    ("33 heartbeat after release", lambda d: d.released().heartbeat(), LockLost,
     "lock 'a': it was released; acquire it again for further work"),
    ("34 write after release", lambda d: d.released().transact_write([WRITE]), LockLost,
     "lock 'a': it was released; acquire it again for further work"),
    ("35 nested hold", nested, INVALID,
     "and would wait for itself; end that block first, or go on under it with hold(…, reentrant"),
    ("36 recursion of @locked", recursive, INVALID,
     "go on under it with hold(…, reentrant=True) or @locked(…, reentrant=True)"),
    ("37 closed client", closed, ClientUnusable, "this LockClient is closed: make another one"),
    ("37a close with no flag", lambda d: d.fake().close(release="no"), INVALID,
     "release: must be True or False (got text of 2 characters)"),
    ("38 second event loop", in_another_loop, ClientUnusable,
     "this AsyncLockClient was used in another event loop: make one in each"),
    ("39 async hold by with", plain_with, INVALID, "with: must be `async with` for AsyncHold"),
    ("40 hold by async with", lambda d: async_with(d.fake().hold("a")), INVALID,
     "with: must be `with` for Hold; for asyncio see AsyncLockClient"),
    ("41 no await", lambda _: unawaited(lambda locks: bool(locks.try_acquire("a"))), INVALID,
     "await: must stand before try_acquire(…), which has not run yet: write `await` before it"),
    ("41a no await behind with", lambda _: async_with(FakeAsyncLockClient().acquire("a")), INVALID,
     "await: must stand before acquire(…), which has not run yet: write `await` before it"),
    ("41b no await before release", lambda _: unawaited_release(), INVALID,
     "await: must stand before release(…), which has not run yet: write `await` before it"),
    ("41g a block as a decorator", lambda d: d.fake().hold("a")(later), INVALID,
     "hold: is no decorator: write `@locked(name, client=locks)` instead"),
    ("41c lost as a condition", lambda d: bool(d.fake().acquire("a").lost), INVALID,
     "event: is an event, and no condition: ask is_set(), as in `if lock.lost.is_set():`"),
    ("41d the same for asyncio", lambda _: lost_as_a_condition(), INVALID,
     "event: is an event, and no condition: ask is_set(), as in `if lock.lost.is_set():`"),
    ("42 client by async with", lambda d: async_with(d.fake()), INVALID,
     "with: must be `with` for FakeLockClient; for asyncio see AsyncLockClient"),
    ("43 @locked field is no parameter", lambda d: formatted(d, "a/{missing}", 7), INVALID,
     "name: its fields must be parameters of the function (order) (got 'a/{missing}')"),
    ("44 @locked with None", lambda d: formatted(d, "a/{order}", None), INVALID,
     "name: must be formed from the arguments of the call, but order is None: pass its value (got"),
    ("44a @locked with empty text", lambda d: formatted(d, "a/{order}", ""), INVALID,
     "name: must be formed from the arguments of the call, but order is empty: pass its value"),
    ("44b @locked with a list", lambda d: formatted(d, "a/{order}", [7]), INVALID,
     "but ValueError: list is not one value: name an element of it (got 'a/{order}')"),
    ("44c @locked with a dot", lambda d: formatted(d, "a/{order.id}", {"id": 7}), INVALID,
     "'dict' object has no attribute 'id': write {order[id]} (got 'a/{order.id}')"),
    ("44d @locked without a key", lambda d: formatted(d, "a/{order[id]}", {}), INVALID,
     "but KeyError: 'id' is missing: pass it (got 'a/{order[id]}')"),
    ("45 @locked if_taken", lambda d: locked("a", client=d.fake(), if_taken="ignore"), INVALID,  # type: ignore[call-overload]  # the mistake
     'if_taken: must be "wait", "skip" or "raise" (got \'ignore\')'),
    ("46 @locked otherwise", lambda d: locked("a", client=d.fake(), otherwise=3), INVALID,  # type: ignore[call-overload]  # the mistake
     'otherwise: goes with if_taken="skip" only (got 3)'),
    ("46a @locked timeout", lambda d: locked("a", client=d.fake(), timeout=3), INVALID,  # type: ignore[call-overload]  # the mistake
     "timeout: is no argument; use max_wait (got 3)"),
    ("46b @locked with a table", lambda _: locked("a", client="locks"), INVALID,  # type: ignore[call-overload]  # the mistake
     "client: must be a LockClient, an AsyncLockClient for coroutine functions, or a function th"),
    ("46c @locked with a class", lambda _: locked("a", client=FakeLockClient), INVALID,
     "or a function that returns the client, as in client=lambda: locks (got <class"),
    ("46d @locked, no coroutine", lambda _: locked("a", client=FakeAsyncLockClient())(len), INVALID,
     "client: must be a LockClient, as it is no coroutine function"),
    ("46e @locked, a coroutine", lambda d: locked("a", client=d.fake())(later), INVALID,
     "client: must be an AsyncLockClient, as it is a coroutine function"),
    ("46f @locked on a class", lambda d: locked("a", client=d.fake())(Desk), INVALID,
     "function: must be a function, and no class: decorate the methods that do the work"),
    ("46g @locked alone on a class", lambda _: locked(Desk), INVALID,
     "function: must be a function, and no class: decorate the methods that do the work"),
    ("47 data too big", lambda d: d.fake().acquire("a", data={"x": "y" * 3000}), INVALID,
     "levels, without NaN, and has 3008 bytes: store the rest elsewhere, and put its key here"),
    ("47a data with a date", lambda d: d.fake().acquire("a", data={"at": WEEK}), INVALID,
     "levels, without NaN: pass str(…) of a date or a set, int(…) or float(…) of a Decimal, and"),
    ("19a lease Decimal", lambda d: d.fake().acquire("a", lease=Decimal(30)), INVALID,
     "let heartbeats renew it; pass int(…) or float(…) of a Decimal (got a value of type Dec"),
    ("48 data is no dict", lambda d: d.fake().acquire("a", data="hello"), INVALID,
     "data: must be a JSON object of at most 2048 bytes"),
    ("49 on_lost without arguments", lambda d: d.fake().acquire("a", on_lost=lambda: 1), INVALID,
     "on_lost: must be a function of lock and reason: lambda lock, reason: …"),
    ("49a on_event without argument", lambda d: d.fake(on_event=lambda: 1), INVALID,
     "on_event: must be a function of event: lambda event: …"),
    ("49b on_lost as a coroutine function", lambda d: d.fake().acquire("a", on_lost=later), INVALID,
     "on_lost: must be a plain function: no event loop would run a coroutine"),
    ("49c on_event as a coroutine function", lambda d: d.fake(on_event=later), INVALID,
     "on_event: must be a plain function: no event loop would run a coroutine"),
    ("50 a write that is no list", lambda d: d.real().acquire("a").transact_write(WRITE), INVALID,
     "items: must be a list of writes, as for boto3's transact_write_items"),
    ("51 values of Python", lambda d: d.real().acquire("a").transact_write([RAW]), INVALID,
     "items: must be a valid transaction of values such as {'S': 'text'}: Parameter"),
    ("51a release that is no flag",
     lambda d: d.real().acquire("a").transact_write([WRITE], release="no"), INVALID,
     "release: must be true or false (got text of 2 characters)"),
    ("65 optimistic with a float",
     lambda d: optimistic.update(items(d), KEY, lambda _: HALF), INVALID,
     "item: must have values that boto3 takes for DynamoDB: Float types are not supported. Use D"),
    ("65a optimistic with a float in the key",
     lambda d: optimistic.read(items(d), {"id": 0.5}), INVALID,
     "key: must have values that boto3 takes for DynamoDB: Float types are not supported. Use De"),
    ("65b optimistic with a client", lambda d: optimistic.read(d.dynamodb, KEY), INVALID,  # type: ignore[arg-type]  # the mistake
     'table: must be a table, as boto3.resource("dynamodb").Table(name) makes it'),
    ("65c optimistic with a coroutine function",
     lambda d: optimistic.update(items(d), KEY, later), INVALID,  # type: ignore[arg-type]  # the mistake
     "change: must be a plain function of the item"),
    ("52 a write to no table", lambda d: d.real().acquire("a").transact_write([WRITE]), WRONG_SETUP,
     "(tables 'orders') and of lock table 'locks' in us-east-1 was refused; check that each table"),
    ("53 a table of another schema", lambda d: d.real(d.other("b")).acquire("a"), WRONG_SETUP,
     "is it a lock table, with the string keys pk and sk?"),
    ("54 create_table over another", lambda d: create_table(d.dynamodb, d.other("c")), INVALID,
     "name: must be a new table, or one with the string keys pk and sk: choose another name"),
    ("55 create_table by a resource",
     lambda _: create_table(boto3.resource("dynamodb"), "d"), INVALID,  # type: ignore[arg-type]  # the mistake
     'client: must be a client, as boto3.client("dynamodb") makes it, and no resource'),
    ("56 wrong region", lambda _: in_region("eu-central-1").acquire("a"), WRONG_SETUP,
     "in eu-central-1: there is no such table; check its name, account and region"),
    ("57 region=", lambda d: d.real(region="eu-central-1"), INVALID,
     "region: is no argument; use session=boto3.Session(region_name=…)"),
    ("58 force_release of no holder", lambda d: d.fake().force_release("a", reason="r"), INVALID,
     "holder: exactly one of holder and fencing_token must say whose grant is to end; `describe`"),
    ("58a force_release without a reason", lambda d: d.fake().force_release("a"), INVALID,
     "reason: is required: force_release(name, holder, fencing_token, reason, requested_by)"),
    ("60 adopt by a wrong owner", lambda d: d.fake().adopt("a", "x" * 20), LockLost,
     "not held by this owner_id: it was released, or its lease has expired; acquire the lock"),
    ("61 release without an owner", lambda d: d.fake().release("a"), INVALID,
     "owner_id: is required: release(name, owner_id); a Lock has lock.release() (it is missing)"),
    ("61a release of a lock", lambda d: d.fake().release(d.released()), INVALID,
     "owner_id: is required: release(name, owner_id); a Lock has lock.release() (it is missing)"),
    ("61b release by a lock", lambda d: d.fake().release("a", d.released()), INVALID,
     "owner_id: must be the text that proves ownership: pass lock.owner_id"),
    ("60a adopt by a lock", lambda d: d.fake().adopt("a", d.released()), INVALID,
     "owner_id: must be the text that proves ownership: pass lock.owner_id"),
    ("62 safe_period > lease", lambda d: d.fake(safe_period=20, lease=10), INVALID,
     "safe_period: must be below 6.46 with a lease of 10 s: with the heartbeat_every of 3.33333"),
    ("62a both", lambda d: d.fake(safe_period=20, heartbeat_every=5, lease=10), INVALID,
     "heartbeat_every and safe_period together (5 s + 20 s): at least 25.53 s (got 10)"),
    ("62b of a lock", lambda d: d.fake(safe_period=20).acquire("a", lease=10), INVALID,
     "heartbeat_every and safe_period together (3.33333 s + 20 s): at least 23.82 s (got 10)"),
    ("63 heartbeat_every > lease", lambda d: d.fake(heartbeat_every=20, lease=10), INVALID,
     "heartbeat_every: must be below 6.46 with a lease of 10 s: with the safe_period of 3.33333"),
    ("57a from_stack in a region",
     lambda _: LockClient.from_stack("F", region_name="x"), INVALID,  # type: ignore[call-arg]  # the mistake
     "region_name: is no argument; use session=boto3.Session(region_name=…)"),
    ("57b a misspelled session", lambda d: d.real(sesion=boto3.Session()), INVALID,
     "sesion: is no argument; use session (got a value of type Session)"),
    ("64 a setting that is gone", lambda d: d.real(takeover="observed"), INVALID,
     "takeover: is no argument; use one of session, client, stepfunctions, clock, owner_na"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("_mistake", "make", "error", "text"), MISTAKES, ids=[case[0] for case in MISTAKES]
)
@pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
def test_a_mistake_names_the_field_the_rule_and_the_next_step(
    desk: Desk,
    _mistake: str,
    make: Callable[[Desk], object],
    error: type[FairlockError],
    text: str,
) -> None:
    with pytest.raises(error) as told:
        make(desk)
    assert text in str(told.value)
    if isinstance(told.value, InvalidRequest):
        assert str(told.value).startswith(f"{told.value.field}: {told.value.rule}")


NO_ERRORS: dict[str, Callable[[Desk], object]] = {
    "5 the table's ARN": lambda d: d.real(
        d.dynamodb.describe_table(TableName=TABLE)["Table"]["TableArn"]
    ).acquire("a"),
    "18 lease timedelta": lambda d: d.fake().acquire("a", lease=timedelta(seconds=30)),
    "21 wait None": lambda d: d.fake().acquire("a", max_wait=None),
    "29 with acquire": lambda d: d.fake().acquire("a").__enter__(),
    "32 release twice": lambda d: d.released().release(),
    "59 describe a lock that never was": lambda d: d.fake().describe("a") is None,
}


@pytest.mark.parametrize("call", NO_ERRORS)
@pytest.mark.filterwarnings("ignore:lock .* was dropped:ResourceWarning")
def test_what_only_looks_like_a_mistake_works(desk: Desk, call: str) -> None:
    assert NO_ERRORS[call](desk)


def test_26_a_hold_that_is_never_entered_is_pointed_out(desk: Desk) -> None:
    expected = "never acquired: write `with locks.hold"
    with pytest.warns(RuntimeWarning, match=expected):
        desk.fake().hold("a")


@pytest.mark.parametrize(("kind", "is_printed"), [("RuntimeWarning", True), ("Warning", False)])
def test_26a_python_prints_that_without_being_asked(kind: str, *, is_printed: bool) -> None:
    """The control is a ResourceWarning, which Python hides: the code went on unlocked, silently."""
    program = (
        "from fairlock.client import lock; from fairlock.testing import FakeLockClient as F\n"
        f"if {not is_printed}: lock.RuntimeWarning = ResourceWarning\n"
        "F().hold('a')"
    )
    run = [sys.executable, "-c", program]
    ran = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60)
    text = f"{kind}: lock 'a' was never acquired: write `with locks.hold('a') as lock:`"
    assert (text in ran.stderr) is is_printed


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_41_a_call_without_await_has_no_attributes_of_a_lock(desk: Desk) -> None:
    del desk  # It collects what was dropped.
    text = r"^await: must stand before acquire.*, which has not run yet: write `await` before it"
    with pytest.raises(InvalidRequest, match=text):
        unawaited(lambda locks: locks.acquire("a").release())


def test_41_without_the_rule_a_forgotten_await_is_true() -> None:
    coroutine = FakeAsyncLockClient.try_acquire.__wrapped__(FakeAsyncLockClient(), "a")  # type: ignore[attr-defined]  # of functools.wraps
    assert coroutine
    coroutine.close()


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


@pytest.mark.parametrize("attribute", ["fencing_token", "release"])
@pytest.mark.parametrize("kind", [FakeLockClient, FakeAsyncLockClient])
@pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
def test_27_28_a_hold_is_no_lock_and_says_what_to_write(
    desk: Desk, kind: type[Any], attribute: str
) -> None:
    del desk  # It collects what was dropped.
    word = "with" if kind is FakeLockClient else "async with"
    expected = (
        r"^with: must enter this block first: it is no lock yet; write "
        rf"`{word} locks.hold\('a'\) as lock:` and use `lock.{attribute}`"
    )
    with pytest.raises(InvalidRequest, match=expected):
        getattr(kind().hold("a"), attribute)


@pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
def test_27a_tracebacks_logs_and_copies_show_the_class_that_the_documents_name(desk: Desk) -> None:
    hold = desk.fake().hold("a")
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


@pytest.mark.filterwarnings("ignore:lock .* was never acquired:RuntimeWarning")
def test_hasattr_copies_and_debuggers_see_no_such_attribute_of_a_hold(desk: Desk) -> None:
    """An error that is none of AttributeError would break `hasattr`, copies and debuggers."""
    hold = desk.fake().hold("a")
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
def test_13_a_name_that_was_formatted_from_no_value_is_logged_once(
    desk: Desk, caplog: pytest.LogCaptureFixture, name: str, part: str
) -> None:
    """It is no error: a customer may be called Null."""
    arguments.warn_of_missing_part.cache_clear()
    locks = desk.fake()
    with caplog.at_level(logging.WARNING, "fairlock"):
        for _ in range(3):
            locks.acquire(name).release()
        for right in ("customer/Nonesuch", "https://example.com/7", "{0d1c-4e}", "a:b/c#d"):
            locks.acquire(right).release()
    [logged] = [each.getMessage() for each in caplog.records if "missing" in each.getMessage()]
    assert logged.startswith(f"lock {name!r}: its part {part} looks like a missing value")
    assert 'composite_name("customer", customer_id)' in logged


def test_a_type_error_of_a_call_that_has_begun_is_left_as_it_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what Python refuses before the first line is explained: later, something was written."""

    def fail(*_arguments: object) -> None:
        raise TypeError("an error of our own")

    locks = desk.fake()
    monkeypatch.setattr(locks, "_acquire", fail)
    with pytest.raises(TypeError, match="an error of our own"):
        locks.acquire("a")


def test_without_the_explanation_a_wrong_argument_is_a_type_error(desk: Desk) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'timeout'"):
        type(desk.fake()).acquire.__wrapped__(desk.fake(), "a", timeout=3)
