"""Scenarios of time: 12, clients are suspended; 13, clocks are wrong, and copies land late."""

from __future__ import annotations

from typing import Any, Final

from fairlock.aws.aws_clock import AwsClock
from fairlock.client import local_waiters
from fairlock.guarded import conditions, guarded_writes
from fairlock.store.context import LockContext
from tests.simulation.clocks import ClockErrors, NodeClock
from tests.simulation.faults import Faults, Machines, Network
from tests.simulation.fleet import Fleet, one_or_three
from tests.simulation.scenario import Control, Scenario, patched

_LEASE_SECONDS: Final = 10.0
_CHECK: Final = conditions.grant_check


def _of_a_process_that_runs(clock: NodeClock) -> float:
    """As CLOCK_MONOTONIC: it does not count the time for which the machine was suspended."""
    return (clock.elapsed() - clock.process.suspended_seconds) * clock.drift


def _true_time(clock: NodeClock, monotonic: float) -> float:
    return monotonic / clock.drift + clock.process.suspended_seconds + clock.origin


def _check_of_anything(**fields: Any) -> Any:  # noqa: ANN401 - as the real one
    check = _CHECK(**fields)["ConditionCheck"]
    return {"ConditionCheck": {**check, "ConditionExpression": "attribute_exists(pk)"}}


def _by_my_clock(found: LockContext, _answer: object) -> int:
    return _wall_ms(found.aws_clock)


def _wall_ms(clock: AwsClock) -> int:
    return clock._clock.wall_ms()  # noqa: SLF001 - a weaker product


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
    controls=(
        Control(
            name="the clock of a lease stands still while the machine is suspended",
            breaks="no more holders than the limit",
            sabotage=lambda: patched(
                (NodeClock, "monotonic", _of_a_process_that_runs),
                (NodeClock, "true_time", _true_time),
            ),
        ),
        Control(
            name="a guarded write does not ask for the grant",
            breaks="guarded writes",
            sabotage=lambda: patched((guarded_writes, "grant_check", _check_of_anything)),
            seed=3,
            faults=Faults(
                machines=Machines(suspended=30, suspended_seconds=30),
                network=Network(late_requests=0.15, late_seconds=30),
            ),
        ),
    ),
)
CLOCKS: Final = Scenario(
    number=13,
    title="clocks are wrong by minutes, drift, are set; front ends differ; writes land twice",
    load="1,500 clients take turns at 300 locks for about a lease; some die",
    promise=(
        "clocks may be wrong by 5 minutes (docs/costs.md); a copy that lands after everything "
        "else is refused (docs/protocol.md)"
    ),
    faults=Faults(
        clocks=ClockErrors(wall_seconds=280, drift=0.019, set_every=120),
        network=Network(front_ends=0.5, copies=0.5, late_seconds=60),
        machines=Machines(killed=3),
    ),
    play=Fleet(clients=1_500, of_a_lock=5, turns=8, lease=10, work=8, options=one_or_three).play,
    controls=(
        Control(
            # That a holder relies on its whole lease, whatever end is stored, has its control in
            # tests/clocks: callers here meet a holder, and so learn AWS's time before they write.
            name="the lease of another is judged by this machine's clock",
            breaks="no more holders than the limit",
            sabotage=lambda: patched((LockContext, "date_ms", _by_my_clock)),
        ),
        Control(
            name="a place in the queue is the time of this machine",
            breaks="places by AWS's time",
            sabotage=lambda: patched((AwsClock, "now_ms", _wall_ms)),
        ),
        Control(
            name="a lease that was over by one Date only is asked for again after 30 s",
            breaks="no lock taken by no one",
            sabotage=lambda: patched((local_waiters, "_DATES_AGREE_SECONDS", 30.0)),
            faults=Faults(machines=Machines(killed=20), network=Network(front_ends=0.5)),
        ),
    ),
)
