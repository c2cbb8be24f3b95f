"""Scenario 5: all status events are lost for an hour, while executions are stopped."""

from __future__ import annotations

from typing import Final

from fairlock.aws.executions import Execution, StepFunctions
from fairlock.protocol.model import Liveness
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults
from tests.simulation.functions import lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.machines import LEASE_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import half_an_hour, let_happen
from tests.simulation.world import World

_SECONDS: Final = 3_600.0
_FALLBACK_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 20.0
BOUND_SECONDS: Final = LEASE_SECONDS + 5 + _FALLBACK_SECONDS + _REQUEST_SECONDS
"""Lease + 5 s, one fallback period, and a call of acquire that is repeated."""


def _play(world: World) -> None:
    faults = AccountFaults(events=EventFaults(lost_spans=((0.0, _SECONDS),)))
    account = Account(world, faults)
    forms = {"queue": 8, "kept alive": 1, "poll": 1}
    an_hour = half_an_hour(
        world, names=3_000, seconds=_SECONDS, work_seconds=40.0, forms=forms, stopped=0.3
    )
    let_happen(account, an_hour)


LOST_EVENTS: Final = Scenario(
    number=5,
    title="all events are lost for an hour",
    load="50,000 guarded executions on 3,000 names in an hour; a third is stopped",
    promise=(
        "if a workflow dies and its event is lost, its lock is free after the lease + 5 s; a "
        "waiter in the queue notices within one more fallback period (docs/guard.md, Liveness)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a running execution counts as dead once its lease is over",
            breaks="no more holders than the limit",
            sabotage=lambda: patched(
                (StepFunctions, "describe", lambda *_: Execution(Liveness.OVER))
            ),
            scale=0.005,
        ),
        Control(
            name="a dead execution counts as running",
            breaks="no lock taken by no one",
            sabotage=lambda: patched(
                (StepFunctions, "describe", lambda *_: Execution(Liveness.RUNNING))
            ),
            scale=0.005,
        ),
    ),
)
