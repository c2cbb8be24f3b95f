"""Scenarios under way: each is played many times, all at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

from tests.e2e.deployment import Deployment

LONGEST_SECONDS: Final = 280
Play = Callable[[Deployment], Any]
"""Plays a scenario once; answers what was seen."""


@dataclass(frozen=True)
class Underway:
    """Plays that were begun; asking for those of a scenario waits for the last of them."""

    plays: Mapping[str, Sequence[Future[Any]]]

    def __getitem__(self, scenario: str) -> list[Any]:
        return [play.result(timeout=LONGEST_SECONDS) for play in self.plays[scenario]]

    def wait(self) -> None:
        """Until all have ended, well or not."""
        wait([play for plays in self.plays.values() for play in plays], timeout=LONGEST_SECONDS)


def begin(
    deployment: Deployment, pool: ThreadPoolExecutor, scenarios: Mapping[str, Sequence[Play]]
) -> Underway:
    """Begins all, those of the first scenario first."""
    return Underway(
        {
            name: [pool.submit(play, deployment) for play in plays]
            for name, plays in scenarios.items()
        }
    )
