"""The reaper's passes, by its own log."""

from __future__ import annotations

import json
from collections import Counter

from tests.e2e.deployment import Deployment, wait_until

SECOND_PASS_SECONDS = 35


def reap_passes(deployment: Deployment) -> Counter[str]:
    """How many passes the reaper has made for each execution, by its own log."""
    logs = deployment.aws.client("logs")
    function = deployment.outputs["Fairlock"]["ReapFunctionName"]
    configuration = deployment.aws.client("lambda").get_function_configuration(
        FunctionName=function
    )
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=configuration["LoggingConfig"]["LogGroup"], filterPattern="reaped"
    )
    lines = [found["message"] for page in pages for found in page["events"]]
    found = [json.loads(line) for line in lines if line.startswith('{"level"')]
    return Counter(each["execution_arn"] for each in found if each["message"] == "reaped")


def wait_for_reap_passes(deployment: Deployment, executions: list[str], *, least: int) -> None:
    """Waits until the reaper has made so many passes for each of them."""

    def are_enough() -> bool:
        counted = reap_passes(deployment)
        return all(counted[execution] >= least for execution in executions)

    wait_until(are_enough, pause_seconds=1)
