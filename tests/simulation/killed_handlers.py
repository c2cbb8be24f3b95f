"""Scenario 10: each handler is killed with 1 % at each request, and stands still before 2 %.

A function dies before its request arrives, while it is under way, or before the answer is back. Its
caller learns nothing but that, and repeats the call. One that stands still goes on up to 25 s
later, perhaps when its execution has been granted the lock by another call and has released it.
The model's one known gap is such a run (`STALLED_CALL`): a grant in vain, which ends with its
lease. Here it occurs once or more in each run, and no lock is idle for longer than is promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from typing import Any, Final
from unittest.mock import patch

from fairlock.protocol import outcomes
from fairlock.protocol.outcomes import AlreadyHolder, Situation
from fairlock.store import acquire
from tests.simulation import machines
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults
from tests.simulation.functions import Json, LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_events import BOUND_SECONDS
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.workload import half_an_hour, let_happen, require_all_free
from tests.simulation.world import World


def _play(world: World) -> None:
    faults = AccountFaults(
        functions=LambdaFaults(kills=0.01, stalls=0.02),
        events=EventFaults(late=0.05, late_seconds=60.0, twice=0.05),
    )
    account = Account(world, faults)
    account.judges_releases = True
    forms = {"queue": 6, "kept alive": 2, "poll": 2}
    let_happen(account, half_an_hour(world, work_seconds=20.0, forms=forms, stopped=0.1))
    require_all_free(account)


def _forgets_itself() -> AbstractContextManager[object]:
    right = outcomes.judge

    def wrong(*args: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
        found = right(*args, **fields)
        return Situation.BUSY if isinstance(found, AlreadyHolder) else found

    return patched((acquire, "judge", wrong))


def _without_retry(scope: Json, function: str) -> None:
    """Lets no state repeat its call of a function."""
    for state in scope["States"].values():
        if state.get("Arguments", {}).get("FunctionName", "").endswith(f":{function}"):
            state["Retry"] = []
        for branch in state.get("Branches", ()):
            _without_retry(branch, function)


@contextmanager
def _releases_once() -> Iterator[None]:
    changed = deepcopy(machines.recorded())
    for each in changed["machines"].values():
        _without_retry(each, "release")
    with patch.object(machines, "recorded", lambda: changed):
        yield


KILLED_HANDLERS: Final = Scenario(
    number=10,
    title="each handler is killed at each of its requests with 1 %, and stalls at 2 %",
    load="50,000 guarded executions on 2,000 names in half an hour; a tenth of them is stopped",
    promise=(
        "whatever dies between two requests, the next call, the reaper, the next departure or the "
        "fallback poll heals it (docs/protocol.md, Dying between two requests)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a repeated acquire does not find its own grant",
            breaks="no lock taken by no one",
            sabotage=_forgets_itself,
            scale=0.01,
        ),
        Control(
            name="a guard does not repeat a release whose function has died",
            breaks="released before the end",
            sabotage=_releases_once,
            seed=2,
            scale=0.01,
        ),
    ),
)
