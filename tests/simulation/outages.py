"""Scenarios of DynamoDB itself: 6, in which it is down for five minutes; 7, one slow partition."""

from __future__ import annotations

from typing import Final

from tests.simulation.faults import Database, Faults
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.scenario import Scenario

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
    idle_bound=400.0,
)
