"""What is measured stands on this: an embedded AWS of its own, clients for it, requests counted."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config

from fairlock import LockClient, create_table
from fairlock.aws.retry import CLIENT_CONFIG

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient, DynamoDBServiceResource

TABLE: Final = "locks"
_PATIENT: Final = Config(max_pool_connections=128, connect_timeout=20, read_timeout=20, proxies={})
"""Hundreds of clients at once make the emulator slow."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Bed:
    """Where to measure, and how much.

    Attributes:
        endpoint_url: of the embedded AWS.
        quick: seconds in all, for a test of the bench itself: its figures mean nothing.
        ends_at: when all must be over, by `time.monotonic`.
    """

    endpoint_url: str
    quick: bool
    ends_at: float = field(default_factory=lambda: time.monotonic() + 600)

    def dynamodb(self, requests: Counter[str] | None = None) -> DynamoDBClient:
        """A client of its own; its requests are counted by operation, repeats included."""
        return dynamodb_at(self.endpoint_url, requests)

    def left(self) -> float:
        """Seconds that are left."""
        return self.ends_at - time.monotonic()

    def prepare(self) -> None:
        """Makes the lock table."""
        create_table(self.dynamodb(), TABLE)


def dynamodb_at(endpoint_url: str, requests: Counter[str] | None = None) -> DynamoDBClient:
    """A DynamoDB client with the project's settings, but for its timeouts."""
    config = CLIENT_CONFIG.merge(_PATIENT)
    client = session_at(endpoint_url).client("dynamodb", config=config)
    if requests is not None:

        def count(request: Any, **_: Any) -> None:  # noqa: ANN401 - botocore's
            target = request.headers["X-Amz-Target"]
            name = target.decode() if isinstance(target, bytes) else target
            requests[name.rpartition(".")[2]] += 1

        client.meta.events.register("before-send.dynamodb.*", count)
    return client


def bare_client_at(endpoint_url: str) -> DynamoDBClient:
    """A client as boto3 makes it by default."""
    return session_at(endpoint_url).client("dynamodb", config=_PATIENT)


def resource_at(endpoint_url: str) -> DynamoDBServiceResource:
    """The same as a resource, which the other library wants."""
    return session_at(endpoint_url).resource("dynamodb", config=_PATIENT)


def session_at(endpoint_url: str) -> boto3.Session:
    """A session whose clients talk to an endpoint on loopback."""
    session = boto3.Session(
        region_name="us-east-1",
        # The embedded AWS knows its callers by its key, which is in the environment then.
        aws_access_key_id=os.environ.get("AWS_ACCESS_KEY_ID", "test"),
        aws_secret_access_key="test",
    )
    made: Any = session  # Its methods are replaced by the same with an argument more.
    made.client = partial(session.client, endpoint_url=endpoint_url)
    made.resource = partial(session.resource, endpoint_url=endpoint_url)
    return session


def lock_client(
    dynamodb: DynamoDBClient,
    *,
    table: str = TABLE,
    **settings: Any,  # noqa: ANN401 - as of LockClient
) -> LockClient:
    """A `LockClient` as it is by default."""
    return LockClient(table, client=dynamodb, **settings)


def spread(values: Sequence[float], *, digits: int = 2) -> Figures:
    """Median, 95th percentile and maximum."""
    if not values:
        return {"number": 0, "median": None, "p95": None, "max": None}
    last = statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
    return {
        "number": len(values),
        "median": round(statistics.median(values), digits),
        "p95": round(min(last, max(values)), digits),
        "max": round(max(values), digits),
    }


def together(actions: Sequence[Callable[[], None]], *, seconds: float) -> None:
    """Runs each action in a thread of its own, all beginning at the same moment.

    Raises:
        TimeoutError: they did not end in time.
        Exception: the first error of an action.
    """
    barrier, errors = threading.Barrier(len(actions), timeout=60), list[BaseException]()

    def run(action: Callable[[], None]) -> None:
        try:
            barrier.wait()
            action()
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        message = f"threads still run after {seconds:.0f} s"
        raise TimeoutError(message)
