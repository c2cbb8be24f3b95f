"""Case 17: lifecycle events, from the stream to the target of a rule; and the monitoring."""

from __future__ import annotations

import itertools
import json
from typing import Any

from tests.e2e.deployment import Deployment, wait_until
from tests.smoke.account import EVENTS, Account
from tests.smoke.facts import LONG_SECONDS
from tests.smoke.separate_stacks import LIFECYCLE_PREFIX

Json = dict[str, Any]


class Received:
    """The events that have come out of the queue so far; one that came twice is counted once."""

    def __init__(self, account: Account, url: str) -> None:
        self._queues = account.client("sqs")
        self._url = url
        self._events: dict[str, Json] = {}

    def of(self, prefix: str) -> list[Json]:
        """The events of the locks whose names begin so, in the order of their kinds."""
        answer = self._queues.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=0
        )
        for message in answer.get("Messages", []):
            event = json.loads(message["Body"])
            self._events.setdefault(event["detail"]["event_id"], event)
            self._queues.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        found = (
            each for each in self._events.values() if each["detail"]["lock_name"].startswith(prefix)
        )
        return sorted(found, key=lambda event: str(event["detail-type"]))


def test_a_grant_and_a_release_reach_a_rule_and_a_renewal_and_a_waiter_do_not(
    account: Account, lock: str
) -> None:
    """Decides whether the stream's filter lets locks through, and events reach a rule's target.

    And whether AWS accepts the dashboard, the alarms and the saved queries of a LockMonitoring.
    """
    lock = f"{LIFECYCLE_PREFIX}{lock}"
    owner = {"lock_name": lock, "owner_id": f"owner of {lock}"}
    waiter = {"lock_name": lock, "owner_id": f"waiter of {lock}"}
    with account.stacks.created(EVENTS) as created:
        service = Deployment(aws=account.workflows.aws, outputs={EVENTS: created}, service=EVENTS)
        received = Received(account, created["LifecycleEventsUrl"])
        _wait_for_the_stream(service, received)
        granted = service.invoke("Acquire", owner_name="smoke test", **owner)
        queued = service.invoke("Acquire", queue=True, **waiter)
        assert service.invoke("Heartbeat", **owner)["renewed"] is True
        service.invoke("Release", ticket=queued["ticket"], **waiter)  # gives up its place
        assert service.invoke("Release", **owner)["released"] is True
        wait_until(lambda: len(received.of(lock)) >= 2, seconds=LONG_SECONDS)
        told = received.of(lock)
        account.tell(f"raw events: {json.dumps(told)}")
        assert [each["detail-type"] for each in told] == ["Lock granted", "Lock released"]
        tokens = {each["detail"]["fencing_token"] for each in told}
        assert tokens == {granted["fencing_token"]}
        assert {each["detail"]["owner_name"] for each in told} == {"smoke test"}
        assert owner["owner_id"] not in json.dumps(told)
        account.tell(_monitoring(account))


def _wait_for_the_stream(service: Deployment, received: Received) -> None:
    """Until events come: a new mapping of a stream does not read what was written before."""
    numbers = itertools.count()

    def told() -> bool:
        name = f"{LIFECYCLE_PREFIX}first/{next(numbers)}"
        granted = service.invoke("Acquire", lock_name=name)
        service.invoke("Release", lock_name=name, owner_id=granted["owner_id"])
        return bool(received.of(f"{LIFECYCLE_PREFIX}first/"))

    wait_until(told, seconds=LONG_SECONDS, pause_seconds=2)


def _monitoring(account: Account) -> str:
    """How much there is of the stack's monitoring."""
    kinds = ("AWS::CloudWatch::Dashboard", "AWS::CloudWatch::Alarm", "AWS::Logs::QueryDefinition")
    found = {kind: len(account.stacks.resources(EVENTS, kind)) for kind in kinds}
    assert all(found.values()), found
    return f"monitoring: {found}"
