"""Scenarios that run beside the tests that are quick: all are begun first, and judged later."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.e2e.deployment import LONGEST_WAIT_SECONDS, Deployment, wait_until

LONGEST_SECONDS: Final = 600
Scenario = Callable[[Deployment], Any]
"""Plays a scenario once; answers what was seen."""


@dataclass(frozen=True)
class ScenarioRuns:
    """Runs that were begun; asking for those of a scenario waits for the last of them."""

    runs: Mapping[str, Sequence[Future[Any]]]

    def __getitem__(self, scenario: str) -> list[Any]:
        return [run.result(timeout=LONGEST_SECONDS) for run in self.runs[scenario]]

    def only(self, scenario: str) -> Any:  # noqa: ANN401 - each scenario has facts of its own
        """What was seen in a scenario that is played once."""
        [seen] = self[scenario]
        return seen

    def wait(self) -> None:
        """Until all have ended, well or not."""
        wait([run for runs in self.runs.values() for run in runs], timeout=LONGEST_SECONDS)


@contextmanager
def begun(
    deployment: Deployment, scenarios: Mapping[str, Sequence[Scenario]]
) -> Iterator[ScenarioRuns]:
    """All runs at the same time, those of the first scenario first."""
    with ThreadPoolExecutor(sum(map(len, scenarios.values()))) as pool:
        try:
            yield ScenarioRuns(
                {
                    name: [pool.submit(scenario, deployment) for scenario in each]
                    for name, each in scenarios.items()
                }
            )
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


# The reaper's passes, by its own log.

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


# Execution environments made in good time: a cold start costs a second of a processor.

_COLD_STARTS_AT_ONCE: Final = 3
_NOBODY: Final = {"lock_name": "warm-up", "owner_id": "no one at all..."}


def warm_up(
    deployment: Deployment,
    *,
    environments: int,
    operations: Sequence[str] = ("Acquire", "Release"),
) -> None:
    """Makes so many environments for each operation, a few at a time.

    All cold starts at once could take a busy machine longer than the functions' timeouts.
    """
    with ThreadPoolExecutor(environments) as pool:
        for operation in operations:
            invoke = partial(deployment.invoke, operation, **_NOBODY)
            for callers in (
                *range(_COLD_STARTS_AT_ONCE, environments, _COLD_STARTS_AT_ONCE),
                environments,
            ):
                for call in [pool.submit(invoke) for _ in range(callers)]:
                    call.result(LONGEST_WAIT_SECONDS)
