"""Against a DynamoDB of the embedded AWS, with aiobotocore as it is."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest
from aiobotocore.session import get_session

from fairlock import (
    AsyncLockClient,
    InvalidRequest,
    LockClient,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    create_table,
)
from fairlock.clock import SystemClock
from fairlock.protocol.outcomes import Queued
from fairlock.store.context import Event, HandedOver, PushUnknown
from testbed.localaws import LocalAws
from tests.support import acquire, store_over
from tests.support.clocks import WrongClock
from tests.unit.client.doubles import descriptors

TABLE = "aio-locks"


@pytest.fixture(scope="module")
def lock_table(aws: LocalAws) -> str:
    create_table(aws.client("dynamodb"), TABLE)
    return TABLE


@pytest.fixture(autouse=True)
def environment(aws: LocalAws, lock_table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lock_table
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)


def test_clients_that_are_closed_leave_nothing_open() -> None:
    opened: list[int] = []

    async def work() -> None:
        async with AsyncLockClient(TABLE) as locks, locks.hold("a") as lock:
            await lock.heartbeat()
            opened.append(descriptors())

    asyncio.run(work())
    files, threads = descriptors(), set(threading.enumerate())
    for _ in range(5):
        asyncio.run(work())
    # Fewer, if what earlier tests have left has ended meanwhile.
    assert (descriptors() <= files, set(threading.enumerate()) - threads) == (True, set())
    assert opened[-1] > files


def test_a_given_client_is_used_beside_those_with_threads_and_stays_open(aws: LocalAws) -> None:
    async def work() -> None:
        async with get_session().create_client("dynamodb") as dynamodb:
            async with AsyncLockClient(TABLE, client=dynamodb) as locks:
                async with locks.hold("b"):
                    assert threads.try_acquire("b") is None
                with threads.hold("b"):
                    assert await locks.try_acquire("b") is None
            assert (await dynamodb.describe_table(TableName=TABLE))["Table"]["TableName"] == TABLE

    with LockClient(TABLE, client=aws.client("dynamodb")) as threads:
        asyncio.run(work())


def test_no_answer_is_an_unknown_outcome_no_table_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def acquire(table: str) -> None:
        async with AsyncLockClient(table) as locks:
            await locks.acquire("a", max_wait=0)

    with pytest.raises(LockStoreMisconfigured, match="'nosuch' in us-east-1: there is no such"):
        asyncio.run(acquire("nosuch"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(LockStoreUnavailable):
        asyncio.run(acquire(TABLE))


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9"], ids=["", "unreachable"])
def test_workflows_are_told_and_asked_through_aiobotocore(
    endpoint: str | None, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token and an execution of this account that Step Functions does not know are answers.

    Without a connection no one knows, and the lock of the workflow is not taken.
    """
    if endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SFN", endpoint)
    events: list[Event] = []
    monkeypatch.setattr("fairlock.client.connection.log_event", events.append)
    account = aws.client("sts").get_caller_identity()["Account"]
    execution = f"arn:aws:states:us-east-1:{account}:execution:machine:gone"
    waits, over = f"waits {endpoint}", f"over {endpoint}"
    long_ago = WrongClock(SystemClock(), skew_ms=-3_600_000)
    store_over(aws.client("dynamodb"), long_ago, table=TABLE).acquire(
        acquire("workflow", lock_name=over, execution_arn=execution)
    )

    async def release_to_one_and_take_from_the_other() -> bool:
        async with AsyncLockClient(TABLE) as locks:
            async with locks.hold(waits):
                queued = store_over(aws.client("dynamodb"), SystemClock(), table=TABLE).acquire(
                    acquire("workflow", lock_name=waits, waits=True, task_token="no such token")
                )
                assert isinstance(queued, Queued)
            return await locks.try_acquire(over) is not None

    is_known = endpoint is None
    assert asyncio.run(release_to_one_and_take_from_the_other()) is is_known
    assert [event.owner_name for event in events if isinstance(event, HandedOver)] == ["workflow"]
    unknown = [event for event in events if isinstance(event, PushUnknown)]
    assert unknown == [PushUnknown(lock_name=waits)] * (not is_known)


def test_ctrl_c_in_a_program_releases_its_locks(aws: LocalAws) -> None:
    async def hold_and_wait() -> None:
        async with AsyncLockClient(TABLE) as locks, locks.hold("c"):
            waiter = asyncio.ensure_future(locks.acquire("c", max_wait=600))
            await asyncio.sleep(0.5)
            os.kill(os.getpid(), 2)
            await waiter

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(hold_and_wait())
    with LockClient(TABLE, client=aws.client("dynamodb")) as locks:
        lock = locks.try_acquire("c")
        assert lock is not None


def test_a_client_finds_its_table_by_the_environment_and_by_the_stack(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/fairlock/Orders/LockTableName"
    aws.client("ssm").put_parameter(Name=path, Value=TABLE, Type="String", Overwrite=True)
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", TABLE)

    async def lock_by_both() -> None:
        async with AsyncLockClient() as one, one.hold("of-a-stack"):
            other = await AsyncLockClient.from_stack("Orders", session=get_session(), lease=30)
            async with other:
                assert await other.try_acquire("of-a-stack") is None
        with pytest.raises(LockStoreMisconfigured, match="no stack of this name shares"):
            await AsyncLockClient.from_stack("Nowhere")
        with pytest.raises(InvalidRequest, match="stack_name"):
            await AsyncLockClient.from_stack("7")
        monkeypatch.delenv("FAIRLOCK_TABLE_NAME")
        with pytest.raises(InvalidRequest, match="set FAIRLOCK_TABLE_NAME"):
            AsyncLockClient()

    asyncio.run(lock_by_both())
