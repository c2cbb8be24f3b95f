"""The table's stream, the function that reads it and EventBridge, deployed as CDK deploys them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from fairlock import LockClient, Superseded
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.direct.functions import Functions, unique

Json = dict[str, Any]
RULE = "lifecycle-events-of-a-test"


@pytest.fixture(scope="module")
def functions(deployment: Deployment) -> Functions:
    """Of the service that tells lifecycle events."""
    return Functions(deployment.of("Unreaped"))


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


def test_a_grant_and_a_release_become_events_of_the_default_bus(functions: Functions) -> None:
    name, owner_id = unique("told"), unique("anna")
    subscriber = Subscriber(functions, name)
    request = {"lock_name": name, "owner_id": owner_id}
    granted = functions.ask("acquire", {**request, "owner_name": "anna"})
    assert functions.ask("heartbeat", request)["renewed"]
    assert functions.ask("release", request)["released"]
    wait_until(lambda: subscriber.has(2), seconds=60)
    told = {event["detail-type"]: event["detail"] for event in subscriber.came}
    assert sorted(told) == ["Lock granted", "Lock released"]
    for detail in told.values():
        assert detail["lock_name"] == name
        assert detail["owner_name"] == "anna"
        assert detail["fencing_token"] == granted["fencing_token"]
    assert owner_id not in json.dumps(subscriber.came)


def test_a_superseded_waiter_becomes_an_event(functions: Functions) -> None:
    deployment, name = functions.deployment, unique("newest")
    subscriber = Subscriber(functions, name)
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
