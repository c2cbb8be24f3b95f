"""The surface of `AsyncLockClient` is that of `LockClient`, to be awaited."""

from __future__ import annotations

import asyncio
import inspect
import math
import subprocess
import sys
from typing import Any

import pytest

from fairlock import (
    AsyncLock,
    AsyncLockClient,
    Lock,
    LockClient,
    LockLost,
)
from tests.support.faults import lost_reply
from tests.unit.aio.conftest import MakeClient
from tests.unit.aio.doubles import AsyncTable
from tests.unit.aio.virtual_time import in_virtual_time
from tests.unit.client.support.doubles import READS

WITHOUT_EXTRA = """
import sys
sys.modules["aiobotocore"] = None
from fairlock import *
from fairlock import LockClient
try:
    from fairlock import AsyncLockClient
except ImportError as error:
    print(error)
"""


def parameters_of(function: Any) -> list[tuple[str, Any, Any]]:  # noqa: ANN401 - any function
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize(
    "name",
    [
        "__init__",
        "acquire",
        "try_acquire",
        "hold",
        "close",
        "describe",
        "list",
        "force_release",
        "release",
        "set_limit",
        "pause",
        "resume",
        "empty_queue",
    ],
)
def test_a_method_of_the_client_takes_what_its_namesake_takes(name: str) -> None:
    assert parameters_of(getattr(AsyncLockClient, name)) == parameters_of(getattr(LockClient, name))


def test_a_client_has_the_methods_of_its_namesake() -> None:
    public = {one for one in dir(LockClient) if not one.startswith("_")}
    assert {one for one in dir(AsyncLockClient) if not one.startswith("_")} == public
    names = [[p[0] for p in parameters_of(c.adopt)] for c in (AsyncLockClient, LockClient)]
    assert names[0] == names[1]


def test_a_lock_has_the_methods_of_its_namesake() -> None:
    assert {one for one in dir(AsyncLock) if not one.startswith("_")} == {
        one for one in dir(Lock) if not one.startswith("_")
    }
    for name in ("heartbeat", "release", "transact_write"):
        assert parameters_of(getattr(AsyncLock, name)) == parameters_of(getattr(Lock, name))


@in_virtual_time
async def test_a_waiter_joins_then_reads_and_asks_again_every_two_minutes(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async with make_client() as locks, make_client("berta", heartbeat_every=math.inf) as others:
        first = await others.acquire("a", lease=3600, max_wait=0)
        waiter = asyncio.create_task(locks.acquire("a", max_wait=600))
        await asyncio.sleep(10)
        joined = len(table.log)
        await asyncio.sleep(200)
        writes = [name for name in table.names()[joined:] if name not in READS]
        assert writes == ["update_item", "transact_write_items"]
        await first.release()
        lock = await waiter
        assert lock.fencing_token == first.fencing_token + 1


@in_virtual_time
async def test_waiters_of_one_client_are_served_in_the_order_in_which_they_came(
    make_client: MakeClient,
) -> None:
    served: list[int] = []

    async def work(number: int) -> None:
        await asyncio.sleep(number)
        async with locks.hold("a", max_wait=600):
            served.append(number)
            await asyncio.sleep(30)

    async with make_client() as locks:
        await asyncio.gather(*(work(n) for n in range(10)))
    assert served == list(range(10))


@in_virtual_time
async def test_guarded_writes_are_committed_with_the_release_or_refused_without_the_lock(
    make_client: MakeClient, table: AsyncTable
) -> None:
    item = {"Put": {"TableName": "other", "Item": {"pk": {"S": "x"}, "sk": {"S": "y"}}}}
    async with make_client() as locks:
        lock = await locks.acquire("a")
        await lock.transact_write([item], release=True)  # type: ignore[list-item]  # a plain dict
        assert (table.state("a").held, ("x", "y") in table.memory.items) == (0, True)
        assert await lock.release() is True
        del table.memory.items["x", "y"]
        with pytest.raises(LockLost):
            await lock.transact_write([item])  # type: ignore[list-item]  # same
        assert ("x", "y") not in table.memory.items


def test_without_the_extra_the_error_names_it_and_the_rest_works() -> None:
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA], capture_output=True, text=True, check=True
    )
    assert told.stdout == (
        "AsyncLockClient needs aiobotocore and greenlet, an optional part of Fairlock: "
        "install Fairlock from its repository with the extra 'async'\n"
    )


@in_virtual_time
async def test_a_body_that_succeeds_in_an_outage_that_outlasts_its_lease_is_told(
    make_client: MakeClient, table: AsyncTable
) -> None:
    async def work() -> None:
        async with make_client().hold("a"):
            table.outage = lost_reply()
            await asyncio.sleep(31)

    with pytest.raises(LockLost, match="its lease is over"):
        await work()
