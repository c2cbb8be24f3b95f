"""Scenarios that run beside the tests that are quick: all are begun first, and judged later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e.deployment import Deployment

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
