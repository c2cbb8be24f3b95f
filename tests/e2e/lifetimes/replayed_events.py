"""Events of dead workflows that come twice, late and in reverse order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment, Ended
from tests.e2e.lifetimes.contested_lock import ContestedLock, calling
from tests.e2e.lifetimes.workflow_deaths import FOR_EVER_SECONDS
from tests.e2e.reap_passes import SECOND_PASS_SECONDS

OUTLASTS_SECOND_PASSES_SECONDS: Final = SECOND_PASS_SECONDS + 10


@dataclass(frozen=True)
class Replayed:
    """Two dead workflows, and two living ones that came after them.

    Attributes:
        dead: the executions, in the order of their deaths.
        third: how the third one ended, which held the lock when the events came again.
        fourth: how the fourth one ended, which was in the queue.
        overlap_seconds: for how long both were at work.
    """

    dead: tuple[str, str]
    third: Ended
    fourth: Ended

    @property
    def overlap_seconds(self) -> float:
        overlap_ms: float = self.third.output["ended_ms"] - self.fourth.output["began_ms"]
        return max(0.0, overlap_ms / 1000)


def event(execution_arn: str) -> dict[str, Any]:
    """What the rule puts into the queue."""
    return {"detail": {"executionArn": execution_arn, "redriveCount": "0"}}


def second_pass(execution_arn: str) -> dict[str, Any]:
    """What the reaper sends to itself."""
    return {"execution_arn": execution_arn, "redrives": 0, "second_pass": True}


def send(deployment: Deployment, *messages: dict[str, Any]) -> None:
    for message in messages:
        _queues(deployment.aws).send_message(
            QueueUrl=deployment.outputs["Fairlock"]["ReapQueueUrl"],
            MessageBody=json.dumps(message),
        )


@cache
def _queues(aws: LocalAws) -> Any:  # noqa: ANN401 - a boto3 client
    return aws.client("sqs")


def twice_in_reverse_order(deployment: Deployment) -> Replayed:
    """Events of two dead workflows, each of them twice more, when others hold and wait."""
    contested = ContestedLock(deployment)
    with calling():
        first = contested.start_inside("DiesKeptAlive", seconds=FOR_EVER_SECONDS)
        second = contested.start_behind("Dies", seconds=FOR_EVER_SECONDS)
        third = contested.start_behind("Dies", seconds=OUTLASTS_SECOND_PASSES_SECONDS)
        fourth = contested.start_behind("Dies", seconds=0)
        for dead, heir in ((first, second), (second, third)):
            contested.stop(dead)
            contested.await_holder(heir)
        messages = (event, event, second_pass)
        send(deployment, *(message(dead) for message in messages for dead in (second, first)))
    return Replayed((first, second), contested.ended(third), contested.ended(fourth))


def of_the_living(deployment: Deployment) -> Replayed:
    """Forged messages about the one that holds the lock, and runs."""
    contested = ContestedLock(deployment)
    with calling():
        third = contested.start_inside("Dies", seconds=20)
        fourth = contested.start_behind("Dies", seconds=0)
        later_run = {**second_pass(third), "redrives": 7}
        send(deployment, event(third), second_pass(third), later_run)
    return Replayed((third, third), contested.ended(third), contested.ended(fourth))
