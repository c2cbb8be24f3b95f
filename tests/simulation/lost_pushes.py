"""Scenario 11: a third of the pushes by which waiters are told of their grants are lost."""

from __future__ import annotations

from typing import Any, Final

from fairlock.protocol.outcomes import AlreadyHolder, Situation
from fairlock.store import acquire
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults, Network
from tests.simulation.functions import lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import Load, Workflows, figures_of, wait_until_idle
from tests.simulation.world import World

_SECONDS: Final = 1_800.0
_FALLBACK_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 20.0
_LOST: Final = 1 / 3
_JUDGE: Final = acquire.judge  # type: ignore[attr-defined] # a control goes on with it


def _play(world: World) -> None:
    account = Account(world, AccountFaults(events=EventFaults()))
    account.step_functions.lost_pushes = _LOST
    load = Load(
        executions=world.scaled(20_000),
        names=world.scaled(2_000),
        exponent=0.3,
        seconds=_SECONDS,
        work_seconds=60.0,
        forms={"queue": 4, "kept alive": 1},
        failing=0.05,
    )
    Workflows(account, load)
    wait_until_idle(account, from_seconds=_SECONDS)
    world.run(at_most=_SECONDS + 7_200)
    world.figures.update(figures_of(account))


def _that_never_finds_its_grant(*args: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
    found = _JUDGE(*args, **fields)
    return Situation.BUSY if isinstance(found, AlreadyHolder) else found


LOST_PUSHES: Final = Scenario(
    number=11,
    title="a third of all pushes are lost",
    load="20,000 guarded executions on 2,000 names in half an hour, work of a minute",
    promise=(
        "the waiter already has the lock; it notices after its fallback period of 5 minutes "
        "(docs/guarantees.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.002)),
    play=_play,
    idle_bound=_FALLBACK_SECONDS + _REQUEST_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a waiter that asks again does not find its grant",
            breaks="no lock taken by no one",
            sabotage=lambda: patched((acquire, "judge", _that_never_finds_its_grant)),
            scale=0.01,
        ),
    ),
)
