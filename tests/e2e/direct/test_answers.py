"""Direct invocation of the deployed functions, and the events that they become."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime

import pytest

from fairlock import LockClient, Superseded
from fairlock.clock import stored_end_ms
from tests.e2e.deployment import Deployment, Json, wait_until
from tests.e2e.direct.functions import Functions, unique


@pytest.fixture(scope="module")
def functions(deployment: Deployment) -> Functions:
    return Functions(deployment)


def epoch_ms(shown: str) -> int:
    assert len(shown) == len("2030-01-31T09:15:00.250Z")
    assert shown.endswith("Z")
    return round(datetime.fromisoformat(shown).timestamp() * 1000)


def test_acquire_heartbeat_and_release_answer_in_the_documented_shapes(
    functions: Functions,
) -> None:
    named = {"lock_name": unique("shapes"), "owner_id": unique("owner")}
    before_ms = time.time_ns() // 1_000_000
    granted = functions.ask(
        "acquire", {**named, "owner_name": "anna", "lease_seconds": 30, "data": {"why": "é"}}
    )
    after_ms = time.time_ns() // 1_000_000
    token, acquired_at = granted["fencing_token"], granted["acquired_at"]
    assert granted == {
        "acquired": True,
        **named,
        "fencing_token": token,
        "lease_seconds": 30,
        "acquired_at": acquired_at,
        "expires_in_seconds": granted["expires_in_seconds"],
    }
    assert before_ms <= epoch_ms(acquired_at) <= after_ms
    assert 15 <= granted["expires_in_seconds"] < 30, "less than the lease, and at least half"
    assert token == epoch_ms(acquired_at) * 1000 + 1

    renewed = functions.ask("heartbeat", {**named, "lease_seconds": 90.5})
    assert renewed == {
        "renewed": True,
        **named,
        "fencing_token": token,
        "lease_seconds": 90.5,
        "acquired_at": acquired_at,
        "expires_in_seconds": renewed["expires_in_seconds"],
    }
    assert 45.25 <= renewed["expires_in_seconds"] < 90.5
    assert functions.ask("release", named) == {"released": True, **named}


def test_refusals_answer_in_the_documented_shapes(functions: Functions) -> None:
    lock_name = unique("refusals")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}
    granted = functions.ask("acquire", {**anna, "owner_name": "anna"})
    refused = functions.invoke("acquire", ben)
    [holder] = refused.payload["holders"]
    assert refused.payload == {
        "acquired": False,
        **ben,
        "reason": "HELD",
        "holders": [
            {
                "owner_name": "anna",
                "acquired_at": granted["acquired_at"],
                "expires_at": holder["expires_at"],
            }
        ],
        "retry_after_seconds": refused.payload["retry_after_seconds"],
    }
    stored_ms = stored_end_ms(epoch_ms(granted["acquired_at"]), 60_000)
    assert epoch_ms(holder["expires_at"]) == stored_ms
    assert refused.payload["retry_after_seconds"] in (1, 2)
    not_held = {**ben, "reason": "NOT_HELD"}
    assert functions.ask("heartbeat", ben) == {"renewed": False, **not_held}
    assert functions.ask("release", ben) == {"released": False, **not_held}
    functions.ask("release", anna)
    late = functions.ask("acquire", anna)
    assert (late["acquired"], late["reason"], late["holders"]) == (False, "ALREADY_RELEASED", [])


def test_an_invocation_that_comes_late_is_told_when_to_say_that_it_was_made(
    functions: Functions,
) -> None:
    lock_name = unique("late")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}
    late = {**anna, "entered_at_ms": time.time_ns() // 1_000_000 - 5_000}
    for owner in (anna, ben):
        assert functions.ask("acquire", owner)["acquired"]
        functions.ask("release", owner)
    refused = functions.ask("acquire", late)
    shown = {name: refused.pop(name) for name in ("detail", "entered_at_ms")}
    assert refused == {
        "acquired": False,
        **anna,
        "reason": "ASK_AGAIN",
        "holders": [],
        "retry_after_seconds": 1,
    }
    assert shown["detail"].startswith("by AWS's clock an owner has left the lock since")
    again = {**anna, "entered_at_ms": shown["entered_at_ms"]}
    assert functions.ask("acquire", again)["acquired"]
    functions.ask("release", anna)
    unprotected = functions.ask("acquire", ben)  # It does not say when it was made.
    assert unprotected["acquired"] is True
    functions.ask("release", ben)


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
