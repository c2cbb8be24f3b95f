"""What tests of several suites share: a table, a store over it, short requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import RetryBudget
from fairlock.clock import AwsClock, Clock
from fairlock.errors import DescribedHolder, LockItemMalformed
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.description import LockDescription
from fairlock.protocol.items import read_state
from fairlock.protocol.model import (
    AcquireRequest,
    ForceReleaseRequest,
    Grant,
    HeartbeatRequest,
    KeepAliveRequest,
    LockState,
    ReleaseRequest,
    SeenLock,
)
from fairlock.protocol.outcomes import NotHeld, Queued, Reaped, Refusal, Released
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, lock_key
from fairlock.store import acquire as acquiring
from fairlock.store import administration, keep_alive, queue, reap
from fairlock.store import release as releasing
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import ExecutionEnded

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


LOCK = "nightly-report"
TABLE = "locks"
HOLDER: Final = DescribedHolder(
    owner_name="anna",
    acquired_at=datetime(2030, 1, 1, tzinfo=UTC),
    expires_at=datetime(2030, 1, 2, tzinfo=UTC),
    fencing_token=7,
    lease=60.0,
    limit=1,
    data={"order": 7},
    execution_arn=None,
)
"""One whom `describe` has shown."""
OTHER_DYNAMODB: Final = pytest.StashKey[Any]()
"""A DynamoDB client that `make second-engine` runs tests with, instead of theirs."""


def in_a_thread(work: Callable[[], Any]) -> Future[Any]:
    """What becomes of work in another thread within 30 seconds. The thread may hang."""
    ended: Future[Any] = Future()

    def run() -> None:
        try:
            ended.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is told
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait([ended], 30)
    return ended


def logged_here(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What this thread has logged. Clients of earlier tests may log in threads of their own."""
    here = threading.get_ident()
    return [record.getMessage() for record in caplog.records if record.thread == here]


def create_lock_table(client: DynamoDBClient, name: str = TABLE) -> None:
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[
            {"AttributeName": PARTITION_KEY, "KeyType": "HASH"},
            {"AttributeName": SORT_KEY, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": PARTITION_KEY, "AttributeType": "S"},
            {"AttributeName": SORT_KEY, "AttributeType": "S"},
        ],
    )


def moved_clock(clock: Clock) -> AwsClock:
    """AWS's time by a clock that a test moves: of that stand-ins for DynamoDB know nothing."""
    return AwsClock(clock, uses_dates=False)


def store_over(
    client: Any,  # noqa: ANN401 - a DynamoDB client or something that wraps one
    clock: Clock,
    *,
    table: str = TABLE,
    **seams: Any,  # noqa: ANN401 - a context's fields
) -> Operations:
    """A store without jitter, which meets no workflows unless `seams` names some."""
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    context = LockContext(
        table=LockTable(client, table, retry_budget=retry_budget, aws_clock=moved_clock(clock)),
        retry_budget=retry_budget,
        random=lambda: 0.5,
    )
    return Operations(replace(context, **seams))


def owner(name: str) -> str:
    """An owner id that keeps the rules: `owner("anna")` is anna and twelve dashes or more."""
    return f"{name:->16}"


def acquire(name: str, **fields: Any) -> AcquireRequest:  # noqa: ANN401 - fields of the request
    return AcquireRequest(
        **{"lock_name": LOCK, "owner_id": owner(name), "owner_name": name, **fields}
    )


def heartbeat(name: str, **fields: Any) -> HeartbeatRequest:  # noqa: ANN401 - same
    return HeartbeatRequest(**{"lock_name": LOCK, "owner_id": owner(name), **fields})


def release(name: str, **fields: Any) -> ReleaseRequest:  # noqa: ANN401 - same
    fields = {"waits": "ticket" in fields, **fields}
    return ReleaseRequest(**{"lock_name": LOCK, "owner_id": owner(name), **fields})


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of a lock as one object over one context; the product has none.

    Each call looks its operation up in its module, so that a test can replace it there.
    """

    context: LockContext

    def acquire(
        self, request: AcquireRequest, *, seen: SeenLock | None = None
    ) -> Grant | Queued | Refusal:
        return acquiring.acquire(self.context, request, seen=seen)

    def heartbeat(self, request: HeartbeatRequest) -> Grant | NotHeld:
        grant = keep_alive.renew_lease(self.context, request)
        return grant or NotHeld(lock_name=request.lock_name, owner_id=request.owner_id)

    def keep_alive(self, request: KeepAliveRequest) -> KeepAliveOutcome:
        return keep_alive.keep_alive(self.context, request)

    def release(
        self, request: ReleaseRequest, *, seen: SeenLock | None = None
    ) -> Released | NotHeld:
        return releasing.release(self.context, request, seen=seen)

    def reap(self, ended: ExecutionEnded) -> Reaped:
        return reap.reap(self.context, ended)

    def force_release(self, request: ForceReleaseRequest) -> Released | None:
        return administration.force_release(self.context, request)

    def change_ceiling(self, request: SetCeilingRequest) -> None:
        administration.change_ceiling(self.context, request)

    def read_state(self, lock_name: str) -> LockState:
        return read_state(self.context.table.read(lock_key(lock_name)))

    def read_lock(self, lock_name: str) -> SeenLock:
        return queue.read_lock(self.context, lock_name)

    def count_ahead(self, lock_name: str, owner_id: str, *, ticket: int) -> int:
        return queue.count_ahead(self.context, lock_name, owner_id, entered_at_ms=ticket)

    def describe(self, lock_name: str) -> LockDescription | None:
        return administration.describe(self.context, lock_name)

    def list_locks(
        self, prefix: str = "", *, after: str | None = None
    ) -> Iterator[LockDescription | LockItemMalformed]:
        return administration.list_locks(self.context, prefix, after=after)


@dataclass(frozen=True)
class LambdaContextStub:
    """What the Lambda runtime hands to a handler beside the event."""

    function_name: str = "acquire"
    memory_limit_in_mb: int = 256
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
    aws_request_id: str = "11111111-2222-3333-4444-555555555555"

    def get_remaining_time_in_millis(self) -> int:
        return 10_000


# What handlers print: each line is JSON, a metric in the embedded format of CloudWatch or a log.

Line = dict[str, Any]


def lines(capsys: pytest.CaptureFixture[str]) -> list[Line]:
    """All that was printed since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def metrics(found: Iterable[Line]) -> list[Line]:
    return [line for line in found if "_aws" in line]


def logged(found: Iterable[Line]) -> list[Line]:
    return [line for line in found if "_aws" not in line]


def values(found: Iterable[Line]) -> dict[str, list[float]]:
    """The values of each metric."""
    return {
        metric["Name"]: line[metric["Name"]]
        for line in metrics(found)
        for directive in line["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


def printed(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, list[float]], list[str]]:
    """The values of each metric, and the messages logged, since the last call."""
    found = lines(capsys)
    return values(found), [line["message"] for line in logged(found)]
