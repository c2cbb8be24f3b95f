"""Events of dead workflows that come twice, late and in reverse order."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from localaws import LocalAws
from tests.e2e.deployment import Deployment, Ended, wait_until
from tests.e2e.lifetimes.deaths import FOR_EVER_SECONDS
from tests.e2e.lifetimes.scene import SECOND_LOOK_SECONDS, Scene, at_work

OUTLASTS_SECOND_LOOKS_SECONDS: Final = SECOND_LOOK_SECONDS + 10


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


def second_look(execution_arn: str) -> dict[str, Any]:
    """What the reaper sends to itself."""
    return {"execution_arn": execution_arn, "redrives": 0, "second_look": True}


def send(deployment: Deployment, *messages: dict[str, Any]) -> None:
    for message in messages:
        _queues(deployment.aws).send_message(
            QueueUrl=deployment.outputs["Leasehold"]["ReapQueueUrl"],
            MessageBody=json.dumps(message),
        )


@cache
def _queues(aws: LocalAws) -> Any:  # noqa: ANN401 - a boto3 client
    return aws.client("sqs")


def twice_in_reverse_order(deployment: Deployment) -> Replayed:
    """Events of two dead workflows, each of them twice more, when others hold and wait."""
    scene = Scene(deployment)
    with at_work():
        first = scene.start_inside("DiesKept", seconds=FOR_EVER_SECONDS)
        second = scene.start_behind("Dies", seconds=FOR_EVER_SECONDS)
        third = scene.start_behind("Dies", seconds=OUTLASTS_SECOND_LOOKS_SECONDS)
        fourth = scene.start_behind("Dies", seconds=0)
        for dead, heir in ((first, second), (second, third)):
            scene.stop(dead)
            scene.await_holder(heir)
        looks = (event, event, second_look)
        send(deployment, *(look(dead) for look in looks for dead in (second, first)))
    return Replayed((first, second), scene.ended(third), scene.ended(fourth))


def of_the_living(deployment: Deployment) -> Replayed:
    """The same with an event of the one that holds the lock."""
    scene = Scene(deployment)
    with at_work():
        third = scene.start_inside("Dies", seconds=8)
        fourth = scene.start_behind("Dies", seconds=0)
        send(deployment, event(third))
    return Replayed((third, third), scene.ended(third), scene.ended(fourth))


def looks(deployment: Deployment) -> Counter[str]:
    """How many looks the reaper has had at each execution, by its own log."""
    logs = deployment.aws.client("logs")
    function = deployment.outputs["Leasehold"]["ReapFunctionName"]
    configuration = deployment.aws.client("lambda").get_function_configuration(
        FunctionName=function
    )
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=configuration["LoggingConfig"]["LogGroup"], filterPattern="reaped"
    )
    lines = [found["message"] for page in pages for found in page["events"]]
    found = [json.loads(line) for line in lines if line.startswith('{"level"')]
    return Counter(each["execution_arn"] for each in found if each["message"] == "reaped")


def wait_for_looks(deployment: Deployment, executions: list[str], *, least: int) -> None:
    """Until the reaper has looked so often at each of them."""

    def are_enough() -> bool:
        counted = looks(deployment)
        return all(counted[execution] >= least for execution in executions)

    wait_until(are_enough, seconds=SECOND_LOOK_SECONDS + 30, pause_seconds=1)
