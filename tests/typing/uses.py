"""Typical uses. No one runs this; type checkers read it, and must agree with `assert_type`."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

import boto3
from aws_durable_execution_sdk_python import DurableContext

from fairlock import (
    AsyncLock,
    AsyncLockClient,
    DescribedCeiling,
    DescribedHolder,
    InvalidRequest,
    Lock,
    LockClient,
    LockDescription,
    LockLost,
    LockWaitTimeout,
    SlotTooLate,
    Superseded,
    create_table,
    locked,
    optimistic,
)
from fairlock.durable import DurableLock
from fairlock.durable import hold as hold_durably
from fairlock.testing import FakeTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

in_memory = LockClient("locks", client=FakeTable())
locks = LockClient("locks", lease=30, max_wait=timedelta(minutes=2), session=boto3.Session())
by_environment = LockClient()
by_stack: LockClient = LockClient.from_stack("Fairlock", lease=timedelta(seconds=30))


def hold() -> int:
    options = {"job": 7}
    with locks.hold(
        "nightly", limit=2, data=options, on_lost=lambda lock, _why: lock.check()
    ) as lock:
        assert_type(lock, Lock)
        assert_type(lock.lost, threading.Event)
        lock.check()
        lock.heartbeat(lease=60)
        return lock.fencing_token


def hold_in_other_ways() -> float:
    with locks.hold("nightly", shared=True, max_hold=timedelta(minutes=10)) as lock:
        assert_type(lock.shared, bool)
        assert_type(lock.hold_remaining, float)
    with locks.hold_all(["a", "b"], max_wait=timedelta(minutes=1)) as held:
        assert_type(held, tuple[Lock, ...])
    with locks.hold("nightly") as outer, locks.hold("nightly", reentrant=True) as inner:
        assert_type(inner, Lock)
        outer.heartbeat(lease=timedelta(minutes=1))
    taken = locks.try_acquire("nightly")
    if taken is not None:
        assert_type(taken, Lock)
        assert_type(taken.release(), bool)
    try:
        lock = locks.acquire("nightly", max_wait=0)
    except LockWaitTimeout:
        return 0
    except InvalidRequest as refused:
        raise ValueError(refused.field + refused.rule) from refused
    with lock:
        return lock.remaining


def take_turns(build: int) -> float:
    try:
        with locks.hold("deploy", only_newest=build), locks.hold("a", only_newest=True):
            locks.pace("vendor", rate=(10, 60), max_wait=timedelta(seconds=30), burst=2)
            locks.pace("report", rate=(1, timedelta(hours=1)), max_wait=0)
    except Superseded as error:
        return assert_type(error.newest, int)
    except SlotTooLate as late:
        assert_type(late.pace_name, str)
        return late.wait_seconds
    return 0


def lead() -> int:
    def work(lock: Lock, stop: threading.Event) -> int:
        return 0 if stop.wait(10) else lock.fencing_token

    return assert_type(locks.lead("exporter", work, max_hold=timedelta(hours=1)), int)


def write(account: TransactWriteItemTypeDef, table: Table) -> None:
    with locks.hold("accounts/anna") as lock:
        lock.transact_write([account], token="7", release=True)
        boto3.client("dynamodb").transact_write_items(
            TransactItems=[lock.condition_check(), account]
        )
        fence = lock.fence_condition()
        table.update_item(
            Key={"account": "anna"},
            UpdateExpression=f"SET balance = :balance, {fence.assignment}",
            ConditionExpression=fence.condition,
            ExpressionAttributeNames=fence.names,
            ExpressionAttributeValues={":balance": 70, **fence.plain_values},
        )
    assert_type(optimistic.update(table, {"account": "anna"}, debit), dict[str, Any] | None)
    optimistic.update(table, {"account": "anna"}, debit, version_attribute="v", retries=3)


def debit(account: dict[str, Any] | None) -> dict[str, Any] | None:
    return account and {**account, "balance": account["balance"] - 30}


@locked("count", reentrant=True, max_hold=600, lease=timedelta(minutes=1))
def count_down(number: int) -> int:
    return count_down(number - 1) if number else 0


@locked("orders/{order_id}", max_wait=10)
def charge(order_id: str, *, amount: int = 1, lock: Lock | None = None) -> str:
    return f"{order_id} {amount} {lock}"


@locked("orders/{event[id]}", if_taken="skip", client=locks)
def handler(event: dict[str, Any], context: object) -> str:
    return f"{event} {context}"


def name_of(number: int) -> str:
    return f"numbers/{number}"


@locked(name_of, if_taken="skip", otherwise=False)
def count(number: int) -> int:
    return number


@locked("orders/{order_id}", client=lambda: AsyncLockClient("locks"))
async def charge_soon(order_id: str, *, lock: AsyncLock | None = None) -> str:
    return f"{order_id} {lock}"


@locked("orders/{order_id}", if_taken="skip")
async def charge_or_skip(order_id: str) -> int:
    return len(order_id)


class Account:
    @locked("accounts/{self}")
    def close(self, reason: str) -> str:
        return reason


def call_locked() -> None:
    assert_type(charge("7", amount=3), str)
    assert_type(handler({"id": 7}, None), str | None)
    assert_type(count(7), int | bool)
    assert_type(Account().close("done"), str)


async def lost(lock: AsyncLock, _reason: str) -> None:
    await asyncio.sleep(lock.remaining)


async def use_async_client() -> None:
    async def work(lock: AsyncLock, stop: asyncio.Event) -> str:
        await stop.wait()
        return lock.name

    async with AsyncLockClient("locks", owner_name="me") as async_locks:
        async with async_locks.hold("nightly", on_lost=lost, on_danger=print) as lock:
            assert_type(lock, AsyncLock)
            assert_type(lock.lost, asyncio.Event)
            await lock.heartbeat(data={"page": 3})
            waiting = asyncio.create_task(lock.lost.wait())
            waiting.cancel()
        assert_type(await async_locks.try_acquire("nightly"), AsyncLock | None)
        await async_locks.pace("vendor", rate=(10, 60.5))
        another = await async_locks.acquire("other", max_wait=3)
        assert_type(await another.release(), bool)
        async with async_locks.hold_all(("a", "b"), max_hold=600, max_wait=60) as held:
            assert_type(held, tuple[AsyncLock, ...])
        assert_type(await async_locks.lead("exporter", work, max_hold=3600), str)
    assert_type(await charge_soon("7"), str)
    assert_type(await charge_or_skip("7"), int | None)


@locked
def rebuild_index(part: int) -> str:
    return f"part {part}"


rebuilt: str = rebuild_index(7)


def operate(locks: LockClient) -> None:
    create_table(boto3.client("dynamodb"), "locks", tags={"team": "billing"})
    found = locks.describe("orders/7")
    assert found is not None
    if found.holders:
        holder: DescribedHolder = found.holders[0]
        locks.force_release(found.name, holder=holder, reason="hangs")
        locks.force_release(found.name, fencing_token=holder.fencing_token, reason="hangs")
    assert_type(found.ceiling, DescribedCeiling | None)
    locks.set_limit("vendor", 3, reason="less", requested_by="olga")
    locks.pause("vendor", reason="freeze")
    locks.resume("vendor")
    assert_type(locks.empty_queue("vendor"), int)
    each: LockDescription
    for each in locks.list("orders/"):
        count: int = each.waiters.count
        assert_type(each.waiters.oldest, datetime | None)
        str(count)
    adopted: Lock = locks.adopt("orders/7", "5f0e7c1e-anna-4c57-9d43-000000000001")
    try:
        adopted.check()
    except LockLost as error:
        raise SystemExit(str(error)) from error


async def operate_asynchronously(locks: AsyncLockClient) -> None:
    async for each in locks.list():
        assert_type(each, LockDescription)
    found = await locks.describe("orders/7")
    if found is not None:
        await locks.force_release(found.name, holder=found.holders[0], reason="hangs")
    await locks.set_limit("vendor", 3, reason="less")
    await locks.pause("vendor", reason="freeze")
    await locks.resume("vendor", requested_by="olga")
    assert_type(await locks.empty_queue("vendor"), int)


def hold_in_a_durable_function(context: DurableContext) -> int:
    with hold_durably(context, "nightly", max_wait=timedelta(minutes=5)) as lock:
        assert_type(lock, DurableLock)
    with hold_durably(context, "nightly", skip=True, data={"job": 7}) as taken:
        assert_type(taken, DurableLock | None)
    with hold_durably(context, "nightly", lease=90, limit=2) as held:
        return held.fencing_token
