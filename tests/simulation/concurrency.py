"""Scenario 8: other functions of the account take all of Lambda's concurrency, again and again.

Lambda then refuses the service's functions too. The guards repeat such calls for many minutes, and
the reaper's batches stay in its queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final
from unittest.mock import patch

from tests.simulation import machines
from tests.simulation.faults import Faults
from tests.simulation.functions import Json, LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.scenario import Control, Scenario
from tests.simulation.workload import half_an_hour, let_happen, require_all_free
from tests.simulation.world import World

_TAKEN_SECONDS: Final = 120.0
_LONGEST_PAUSE_SECONDS: Final = 20.0
_REQUEST_SECONDS: Final = 30.0
_ACCOUNT: Final = 1_000
_ENDS_OF_WORK: Final = {"granted", "succeeded", "WorkFailed", "aborted", "timed_out"}
_PROMISE: Final = "no guard fails because Lambda is busy"


def _play(world: World) -> None:
    spans = tuple(
        (begins, begins + _TAKEN_SECONDS, _ACCOUNT - left)
        for begins, left in zip((100.0, 500.0, 900.0, 1_300.0), (0, 1, 0, 2), strict=True)
    )
    account = Account(world, AccountFaults(functions=LambdaFaults(taken=spans)))
    forms = {"queue": 6, "kept alive": 3, "poll": 1}
    let_happen(account, half_an_hour(world, work_seconds=10.0, forms=forms, stopped=0.05))
    require_all_free(account)
    for name in sorted(set(world.judge.outcomes) - _ENDS_OF_WORK):
        world.judge.require(_PROMISE, holds=False, what=f"{world.judge.outcomes[name]} {name}")
    world.judge.require(_PROMISE, account.functions.counts["throttled"], "no call was refused")


def _without_repeats(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_without_repeats(each) for each in value if not _is_throttled(each)]
    if isinstance(value, dict):
        return {name: _without_repeats(each) for name, each in value.items()}
    return value


def _is_throttled(rule: Any) -> bool:  # noqa: ANN401 - any JSON
    errors = rule.get("ErrorEquals", ()) if isinstance(rule, dict) else ()
    return "Lambda.TooManyRequestsException" in errors


@contextmanager
def _does_not_repeat() -> Iterator[None]:
    """The guards treat such an error as any other: eight repeats, for a minute."""
    changed: Json = _without_repeats(deepcopy(machines.recorded()))
    with patch.object(machines, "recorded", lambda: changed):
        yield


CONCURRENCY: Final = Scenario(
    number=8,
    title="Lambda at its concurrency limit",
    load="50,000 guarded executions on 2,000 names in half an hour; four times for two minutes "
    "other functions leave the service 0, 1 or 2 of 1,000 concurrent invocations",
    promise=(
        "calls are late while Lambda's concurrency is exhausted (docs/monitoring.md, Throttles), "
        "and an error grants nothing and is safe to repeat (docs/guarantees.md)"
    ),
    faults=Faults(),
    play=_play,
    idle_bound=_TAKEN_SECONDS + _LONGEST_PAUSE_SECONDS + _REQUEST_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a guard repeats a refused call no longer than any other",
            breaks=_PROMISE,
            sabotage=_does_not_repeat,
            scale=0.006,
        ),
    ),
)
