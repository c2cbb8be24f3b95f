"""Scenarios of time: 12, clients that are suspended; 13, wrong clocks, and late copies of writes."""

from __future__ import annotations

from typing import Final

from tests.simulation.clocks import ClockErrors
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.scenario import Scenario

_LEASE_SECONDS: Final = 10.0

SUSPENSIONS: Final = Scenario(
    number=12,
    title="clients are suspended for up to three leases",
    load="1,500 clients take turns at 300 locks for about a lease; each is suspended every 2 min",
    promise=(
        "a process that was frozen notices its loss the first time it uses the lock; its guarded "
        "writes are refused (docs/client.md, docs/guarded-writes.md)"
    ),
    faults=Faults(
        machines=Machines(suspended=30, suspended_seconds=3 * _LEASE_SECONDS, killed=1),
        network=Network(late_requests=0.01, copies=0.05, late_seconds=30),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=10, lease=10, work=8, options=one_or_three).play,
    idle_bound=400.0,
)
CLOCKS: Final = Scenario(
    number=13,
    title="clocks are wrong by minutes, drift, are set; front ends differ; writes land twice",
    load="1,500 clients take turns at 300 locks for about a lease; some die",
    promise=(
        "clocks may be wrong by 5 minutes (docs/limits.md); a copy that lands after everything else "
        "is refused (docs/protocol.md)"
    ),
    faults=Faults(
        clocks=ClockErrors(wall_seconds=280, drift=0.019, set_every=120),
        network=Network(front_ends=0.5, copies=0.5, late_seconds=60),
        machines=Machines(killed=3),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=8, lease=10, work=8, options=one_or_three).play,
    idle_bound=400.0,
)
