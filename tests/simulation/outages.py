"""Scenarios of DynamoDB itself: 6, in which it is down for five minutes; 7, one slow partition."""

from __future__ import annotations

from typing import Final

from fairlock.aws.retry import RetryBudget
from fairlock.client import acquisition
from tests.simulation.faults import Database, Faults
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.scenario import Control, Scenario, patched


def _ever_longer(attempt: int, **_fields: object) -> float:
    return 0.1 * 2.0**attempt


def _a_minute(budget: RetryBudget, _attempt: int) -> None:
    budget.clock.wait(60)


OUTAGE: Final = Scenario(
    number=6,
    title="DynamoDB answers nothing for 5 minutes under load, and then all ask at once",
    load="2,000 clients take turns at 200 locks, work 6 s; two outages, one of 5 minutes",
    promise=(
        "an error grants nothing; each client asks again within 12 s of the outage's end "
        "(docs/guarantees.md)"
    ),
    faults=Faults(database=Database(outages=((60, 360), (600, 640)))),
    play=Fleet(clients=2_000, of_a_lock=10, turns=8, options=one_or_three, max_wait=900).play,
    controls=(
        Control(
            name="a client pauses for longer and longer while it gets no answer",
            breaks="no lock taken by no one",
            sabotage=lambda: patched((acquisition, "retry_seconds", _ever_longer)),
        ),
    ),
)
THROTTLED: Final = Scenario(
    number=7,
    title="one partition is throttled",
    load="1,500 clients take turns at 300 locks, a quarter of them in a partition of 300 units",
    promise=(
        "different locks do not affect each other (docs/costs.md); a throttle is no answer, and "
        "costs time only (docs/guarantees.md)"
    ),
    faults=Faults(database=Database(slow_units=300)),
    play=Fleet(
        clients=1_500, of_a_lock=5, turns=15, lease=30, think=2, work=3, options=one_or_three
    ).play,
    controls=(
        Control(
            name="a request that was throttled is repeated after a minute",
            breaks="no lock taken by no one",
            sabotage=lambda: patched((RetryBudget, "pause", _a_minute)),
        ),
    ),
)
