"""The deployed functions, invoked as a caller does: their answers, their events, and a crowd."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

import pytest

from fairlock import LockClient, Superseded
from fairlock.protocol.schema import lock_key
from tests.e2e.deployment import Deployment, Json, wait_until

CALLERS = 6


def unique(name: str) -> str:
    """A lock name or an owner id that no other test uses."""
    return f"{name}-{uuid.uuid4()}"


@dataclass(frozen=True)
class Invoked:
    """What came back: an answer, or an error with the name of its class."""

    payload: Json
    function_error: str | None
    log: str

    @property
    def error(self) -> str | None:
        """The class name that `ErrorEquals` of a workflow matches."""
        return str(self.payload["errorType"]) if self.function_error else None


@dataclass(frozen=True)
class Functions:
    """Acquire, heartbeat and release of the deployed stack, and access to its table."""

    deployment: Deployment

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client(
            "lambda",
            max_pool_connections=CALLERS,
            read_timeout=60,
            retries={"total_max_attempts": 1},
        )

    @cached_property
    def dynamodb(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client("dynamodb", max_pool_connections=CALLERS)

    @property
    def table(self) -> str:
        return self.deployment.table_name

    def function(self, operation: str) -> str:
        return self.deployment.function_name(operation.capitalize())

    def invoke(self, operation: str, event: object) -> Invoked:
        response = self._client.invoke(
            FunctionName=self.function(operation), Payload=json.dumps(event), LogType="Tail"
        )
        return Invoked(
            payload=json.load(response["Payload"]),
            function_error=response.get("FunctionError"),
            log=base64.b64decode(response.get("LogResult", "")).decode(),
        )

    def ask(self, operation: str, event: Mapping[str, object]) -> Json:
        """The answer; an error fails the test."""
        invoked = self.invoke(operation, event)
        assert invoked.function_error is None, invoked.payload
        return invoked.payload

    def item(self, lock_name: str) -> Json:
        found = self.dynamodb.get_item(
            TableName=self.table, Key=lock_key(lock_name), ConsistentRead=True
        )
        item: Json = found["Item"]
        return item


@pytest.fixture(scope="module")
def functions(deployment: Deployment) -> Functions:
    return Functions(deployment)


def test_acquire_heartbeat_and_release_answer_with_the_time_of_aws(functions: Functions) -> None:
    named = {"lock_name": unique("shapes"), "owner_id": unique("owner")}
    before = datetime.now(UTC)
    granted = functions.ask("acquire", {**named, "owner_name": "anna", "data": {"why": "é"}})
    acquired_at = datetime.fromisoformat(granted["acquired_at"])
    assert before - timedelta(milliseconds=1) < acquired_at <= datetime.now(UTC)
    assert granted["fencing_token"] == round(acquired_at.timestamp() * 1000) * 1000 + 1
    renewed = functions.ask("heartbeat", {**named, "lease_seconds": 90.5})
    assert (renewed["renewed"], renewed["acquired_at"]) == (True, granted["acquired_at"])
    assert 45.25 <= renewed["expires_in_seconds"] < 90.5, "less than the lease, and at least half"
    assert functions.ask("release", named) == {"released": True, **named}


def test_the_functions_log_json_lines_without_owner_ids(functions: Functions) -> None:
    named = {"lock_name": unique("logs"), "owner_id": unique("owner")}
    invoked = [
        functions.invoke(operation, named)
        for operation in ("acquire", "acquire", "heartbeat", "release", "release", "heartbeat")
    ]
    lines = [line for one in invoked for line in one.log.splitlines() if _is_ours(line)]
    messages = [json.loads(line).get("message") for line in lines]
    said = [message for message in messages if message is not None]
    assert said == ["granted", "granted", "released", "released", "not held"]
    assert not [one.log for one in invoked if named["owner_id"] in one.log]


def _is_ours(line: str) -> bool:
    """Apart from the lines that the Lambda platform writes."""
    return bool(line.strip()) and not line.startswith(("START ", "END ", "REPORT ", "INIT_START "))


# The table's stream, the function that reads it and EventBridge, as CDK deploys them.

RULE = "lifecycle-events-of-a-test"


@pytest.fixture(scope="module")
def telling(deployment: Deployment) -> Functions:
    """Of the service that tells lifecycle events."""
    return Functions(deployment.of("OtherService"))


class Subscriber:
    """A queue that a rule of the default bus brings the events of one lock to."""

    def __init__(self, functions: Functions, lock_name: str) -> None:
        aws = functions.deployment.aws
        bus, self.sqs = aws.client("events"), aws.client("sqs")
        self.url = self.sqs.create_queue(QueueName=RULE)["QueueUrl"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        arn = found["Attributes"]["QueueArn"]
        bus_may_send = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [bus_may_send]})
        self.sqs.set_queue_attributes(QueueUrl=self.url, Attributes={"Policy": policy})
        pattern = {"source": ["fairlock"], "detail": {"lock_name": [lock_name]}}
        bus.put_rule(Name=RULE, EventPattern=json.dumps(pattern))
        bus.put_targets(Rule=RULE, Targets=[{"Id": "queue", "Arn": arn}])
        self.came: list[Json] = []

    def has(self, number: int) -> bool:
        """Whether so many events came."""
        found = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10)
        self.came += [json.loads(message["Body"]) for message in found.get("Messages", [])]
        return len(self.came) >= number


def test_a_grant_and_a_release_become_events_of_the_default_bus(telling: Functions) -> None:
    name, owner_id = unique("told"), unique("anna")
    subscriber = Subscriber(telling, name)
    request = {"lock_name": name, "owner_id": owner_id}
    granted = telling.ask("acquire", {**request, "owner_name": "anna"})
    assert telling.ask("heartbeat", request)["renewed"]
    assert telling.ask("release", request)["released"]
    wait_until(lambda: subscriber.has(2), seconds=60)
    told = {event["detail-type"]: event["detail"] for event in subscriber.came}
    assert sorted(told) == ["Lock granted", "Lock released"]
    for detail in told.values():
        assert detail["lock_name"] == name
        assert detail["owner_name"] == "anna"
        assert detail["fencing_token"] == granted["fencing_token"]
    assert owner_id not in json.dumps(subscriber.came)


def test_a_superseded_waiter_becomes_an_event(telling: Functions) -> None:
    deployment, name = telling.deployment, unique("newest")
    subscriber = Subscriber(telling, name)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        first, older, newest = (
            stack.enter_context(
                LockClient(deployment.table_name, client=deployment.aws.client("dynamodb"))
            )
            for _ in range(3)
        )
        holder = first.acquire(name, only_newest=1)
        superseded = pool.submit(older.acquire, name, only_newest=2, owner_name="build 2")
        wait_until(lambda: deployment.queue_length(name) == 1)
        last = pool.submit(newest.acquire, name, only_newest=9)
        wait_until(lambda: deployment.queue_length(name) == 2)
        holder.release()
        last.result(timeout=60).release()
        with pytest.raises(Superseded):
            superseded.result(timeout=60)

    def told() -> list[Json]:
        subscriber.has(1)
        events = [one for one in subscriber.came if one["detail-type"] == "Waiter superseded"]
        return [event["detail"] for event in events if event["detail"]["lock_name"] == name]

    wait_until(lambda: told() != [], seconds=60)
    detail = told()[0]
    assert (detail["owner_name"], detail["version"], detail["newest"]) == ("build 2", 2, 9)


# Many callers at once.

Result = TypeVar("Result")
LONGEST_ROUND_SECONDS = 60
ROUNDS = 10
SEMAPHORE_ROUNDS = 3


@dataclass(frozen=True)
class Crowd:
    """Threads that do something at the same moment."""

    pool: ThreadPoolExecutor
    barrier: threading.Barrier

    def meet(self) -> None:
        """Wait until all are here."""
        self.barrier.wait(timeout=LONGEST_ROUND_SECONDS)

    def at_once(self, act: Callable[[int], Result]) -> list[Result]:
        def start_together(number: int) -> Result:
            self.meet()
            return act(number)

        return list(self.pool.map(start_together, range(CALLERS)))


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    with ThreadPoolExecutor(CALLERS) as pool:
        yield Crowd(pool, threading.Barrier(CALLERS))


@pytest.fixture(scope="module")
def warm(functions: Functions, crowd: Crowd) -> None:
    """Execution environments for all callers, made a few at a time.

    All cold starts at once would take two cores longer than the functions' timeout.
    """
    for callers in range(3, CALLERS + 1, 3):
        event = {"lock_name": unique("warm-up"), "limit": 100}
        crowd.at_once(
            lambda number: number < callers and functions.invoke("acquire", event)  # noqa: B023 - done within the round
        )


def acquire_until_answered(functions: Functions, event: Mapping[str, object]) -> Json:
    """A call that timed out because the bed is too busy is repeated, as the contract allows."""
    while True:
        invoked = functions.invoke("acquire", event)
        if invoked.error != "Sandbox.Timedout":
            assert invoked.error is None, invoked.payload
            return invoked.payload


def one_round(functions: Functions, crowd: Crowd, lock_name: str, limit: int) -> list[Json]:
    """All acquire at once; the winners release. Returns the winners' grants."""
    owners = [unique("owner") for _ in range(CALLERS)]
    answers = crowd.at_once(
        lambda number: acquire_until_answered(
            functions, {"lock_name": lock_name, "owner_id": owners[number], "limit": limit}
        )
    )
    grants = [answer for answer in answers if answer["acquired"]]
    refusals = [answer["reason"] for answer in answers if not answer["acquired"]]
    assert set(refusals) <= {"HELD"}
    for grant in grants:
        named = {"lock_name": lock_name, "owner_id": grant["owner_id"]}
        assert functions.ask("release", named)["released"]
    return grants


@pytest.mark.usefixtures("warm")
def test_of_all_who_acquire_at_once_one_wins_each_round(functions: Functions, crowd: Crowd) -> None:
    lock_name = unique("one-winner")
    rounds = [one_round(functions, crowd, lock_name, limit=1) for _ in range(ROUNDS)]
    assert [len(grants) for grants in rounds] == [1] * ROUNDS
    tokens = [grant["fencing_token"] for (grant,) in rounds]
    assert tokens == [tokens[0] + number for number in range(ROUNDS)]


@pytest.mark.usefixtures("warm")
def test_of_all_who_acquire_at_once_five_win_if_the_limit_is_five(
    functions: Functions, crowd: Crowd
) -> None:
    lock_name = unique("five-winners")
    rounds = [one_round(functions, crowd, lock_name, limit=5) for _ in range(SEMAPHORE_ROUNDS)]
    assert [len(grants) for grants in rounds] == [5] * SEMAPHORE_ROUNDS
    tokens = [sorted(grant["fencing_token"] for grant in grants) for grants in rounds]
    everything = [token for of_round in tokens for token in of_round]
    assert everything == list(range(everything[0], everything[0] + 5 * SEMAPHORE_ROUNDS))


def test_without_the_condition_of_the_write_several_win(functions: Functions, crowd: Crowd) -> None:
    """The negative control: read whether the lock is free, then take it."""
    lock_name = unique("read-then-take")

    def read_then_take(_: int) -> bool:
        key = lock_key(lock_name)
        found = functions.dynamodb.get_item(TableName=functions.table, Key=key, ConsistentRead=True)
        crowd.meet()  # all have read before the first one writes
        if "Item" in found:
            return False
        functions.dynamodb.put_item(TableName=functions.table, Item=dict(key))
        return True

    assert sum(crowd.at_once(read_then_take)) == CALLERS
