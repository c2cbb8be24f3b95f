"""What a role may forge: each is refused, or harms only its own."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any, Final

from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.locks import ContestedLock
from tests.e2e.together import together

LONG_SECONDS: Final = 600
DETAIL_TYPE: Final = "Step Functions Execution Status Change"
REFUSED: Final = "NotAuthorizedForSourceException"
"""Of PutEventsResultEntry in EventBridge's API reference."""


def put(deployment: Deployment, execution: str, *, source: str, bus: str = "default") -> str | None:
    """An event that says that the execution has been stopped; the error of EventBridge."""
    detail = {
        "executionArn": execution,
        "status": "ABORTED",
        "redriveCount": 0,
        "stopDate": round(time.time() * 1000),
    }
    entry = {"Source": source, "DetailType": DETAIL_TYPE, "Detail": json.dumps(detail)}
    events: Any = deployment.aws.client("events")
    [told] = events.put_events(Entries=[{**entry, "EventBusName": bus}])["Entries"]
    code = told.get("ErrorCode")
    return None if code is None else str(code)


def make_rule(deployment: Deployment) -> str:
    """A rule that sends events of a source of its own to the reaper's queue; that source."""
    source, events = f"forged.{uuid.uuid4()}", deployment.aws.client("events")
    name = f"fairlock-reaper-{uuid.uuid4().hex[:24]}"
    events.put_rule(Name=name, EventPattern=json.dumps({"source": [source]}))
    queue = deployment.outputs["Fairlock"]["ReapQueueArn"]
    events.put_targets(Rule=name, Targets=[{"Id": "reaper", "Arn": queue}])
    return source


def reap_passes(deployment: Deployment, execution: str) -> int:
    """How many passes the reaper has made for it, by its own log."""
    functions, logs = (deployment.aws.client(name) for name in ("lambda", "logs"))
    found = functions.get_function_configuration(FunctionName=deployment.function_name("Reap"))
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=found["LoggingConfig"]["LogGroup"], filterPattern="reaped"
    )
    lines = [event["message"] for page in pages for event in page["events"]]
    told = [json.loads(line) for line in lines if line.startswith('{"level"')]
    return sum(each["message"] == "reaped" and each["execution_arn"] == execution for each in told)


@together
def test_no_event_that_others_make_reaches_the_reaper_and_control_that_of_aws_does(
    deployment: Deployment,
) -> None:
    """They may put events and make buses and rules, in the account of the service."""
    lock, bus = ContestedLock(deployment), f"bus-{uuid.uuid4()}"
    execution = lock.start_inside("Stays", seconds=LONG_SECONDS)
    deployment.aws.client("events").create_event_bus(Name=bus)
    for source, on in (("aws.states", "default"), ("aws.lambda", "default"), ("aws.states", bus)):
        assert put(deployment, execution, source=source, bus=on) == REFUSED
    for source in ("states", "AWS.states", "my.aws.states", make_rule(deployment)):
        assert put(deployment, execution, source=source) is None
    assert put(deployment, execution, source="my.states", bus=bus) is None

    later = ContestedLock(deployment)  # Its event was put later, and has been served:
    second = later.start_inside("Stays", seconds=LONG_SECONDS)
    later.stop(second)
    wait_until(lambda: later.holders() == [])
    assert (reap_passes(deployment, execution), lock.holders()) == (0, [execution])

    lock.stop(execution)
    wait_until(lambda: lock.holders() == [])
    wait_until(lambda: reap_passes(deployment, execution) > 0)
