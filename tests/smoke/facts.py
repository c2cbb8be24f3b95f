"""What the cases ask of executions and locks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.e2e.deployment import Ended, Json, wait_until
from tests.smoke.account import Account

LONG_SECONDS = 900
"""A bound of the longest waits in a real account."""
_AT_ONCE_IN_AWS = 20
_AT_ONCE = 2

_T = TypeVar("_T")


def most_inside(spans: Iterable[Json]) -> int:
    """How many of the spans `{began_ms, ended_ms}` overlapped at most; they must take time."""
    known = [(float(span["began_ms"]), float(span["ended_ms"])) for span in spans]
    return max(sum(began <= moment < ended for began, ended in known) for moment, _ in known)


def in_parallel(account: Account, call: Callable[[Any], _T], values: Iterable[Any]) -> list[_T]:
    """The answers, in the order of the values; few calls at once in the embedded AWS."""
    with ThreadPoolExecutor(_AT_ONCE if account.is_embedded else _AT_ONCE_IN_AWS) as pool:
        return list(pool.map(call, values))


def ended(account: Account, executions: Sequence[str]) -> list[Ended]:
    """How executions end, which run at the same time."""
    return [account.workflows.ended(each, seconds=LONG_SECONDS) for each in executions]


def outputs(account: Account, executions: Sequence[str]) -> list[Any]:
    """The outputs of executions, all of which must succeed."""
    ends = ended(account, executions)
    failed = [end for end in ends if end.status != "SUCCEEDED"]
    assert not failed, failed[:3]
    return [end.output for end in ends]


@contextmanager
def held(account: Account, lock: str, *, limit: int = 1) -> Iterator[Callable[[], float]]:
    """A lock that the test holds; what is given releases it, and tells when it was asked to.

    The lock is released at the end of the block in any case.
    """
    owner = {"lock_name": lock, "owner_id": str(uuid.uuid4())}
    answer = account.workflows.invoke(
        "Acquire", owner_name="smoke test", lease_seconds=3600, limit=limit, **owner
    )
    assert answer["acquired"] is True, answer
    released: list[float] = []

    def release() -> float:
        released.append(time.time())
        assert account.workflows.invoke("Release", **owner)["released"] is True
        return released[0]

    try:
        yield release
    finally:
        if not released:
            account.workflows.invoke("Release", **owner)


def await_holder(account: Account, lock: str, execution: str) -> None:
    wait_until(lambda: execution in account.workflows.holders(lock))


def await_waiters(account: Account, lock: str, number: int) -> None:
    """Until so many executions are in the queue."""
    wait_until(lambda: len(account.workflows.waiters(lock)) >= number, seconds=LONG_SECONDS)


def dead_letters(account: Account) -> int:
    """How many messages the reaper could not handle."""
    answer = account.client("sqs").get_queue_attributes(
        QueueUrl=account.workflows.outputs[account.workflows.service]["ReapDeadLetterQueueUrl"],
        AttributeNames=["ApproximateNumberOfMessages"],
    )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
