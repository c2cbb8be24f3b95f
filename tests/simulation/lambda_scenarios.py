"""Scenarios of Lambda: its concurrency is exhausted (8), a new version is deployed (15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from fairlock.protocol.claims import Claim, is_of_a_run_that_ended
from fairlock.store import reap
from tests.simulation import machines
from tests.simulation.events import EventFaults
from tests.simulation.faults import Faults, Network
from tests.simulation.functions import LambdaFaults, lambda_runtime
from tests.simulation.guard import Account, AccountFaults
from tests.simulation.lost_messages import BOUND_SECONDS
from tests.simulation.machines import Json, machine
from tests.simulation.scenario import Control, Scenario, patched
from tests.simulation.versions import EARLIER, earlier
from tests.simulation.workload import half_an_hour, let_happen, require_all_free
from tests.simulation.world import World

# Scenario 8: other functions of the account take all of Lambda's concurrency, again and again.
#
# Lambda then refuses the service's functions too. The guards repeat such calls for many minutes,
# and the reaper's batches stay in its queue.

_TAKEN_SECONDS: Final = 120.0
_LONGEST_PAUSE_SECONDS: Final = 20.0
_REQUEST_SECONDS: Final = 30.0
_ACCOUNT: Final = 1_000
_ENDS_OF_WORK: Final = {"granted", "succeeded", "WorkFailed", "aborted", "timed_out"}
_REPEATED: Final = "no guard fails because Lambda is busy"


def _play_at_the_limit(world: World) -> None:
    spans = tuple(
        (begins, begins + _TAKEN_SECONDS, _ACCOUNT - left)
        for begins, left in zip((100.0, 500.0, 900.0, 1_300.0), (0, 1, 0, 2), strict=True)
    )
    account = Account(world, AccountFaults(functions=LambdaFaults(taken=spans)))
    forms = {"queue": 6, "kept alive": 3, "poll": 1}
    let_happen(account, half_an_hour(world, work_seconds=10.0, forms=forms, stopped=0.05))
    require_all_free(account)
    for name in sorted(set(world.judge.outcomes) - _ENDS_OF_WORK):
        world.judge.require(_REPEATED, holds=False, what=f"{world.judge.outcomes[name]} {name}")
    world.judge.require(_REPEATED, account.functions.counts["throttled"], "no call was refused")


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
    play=_play_at_the_limit,
    idle_bound=_TAKEN_SECONDS + _LONGEST_PAUSE_SECONDS + _REQUEST_SECONDS,
    conditions=lambda _scale: lambda_runtime(),
    controls=(
        Control(
            name="a guard repeats a refused call no longer than any other",
            breaks=_REPEATED,
            sabotage=_does_not_repeat,
            scale=0.006,
        ),
    ),
)


# Scenario 15: a new version of the functions is deployed while guards hold locks and wait.
#
# An alias sends a share of the calls to the new version: none, then half, then none again after a
# rollback, then half, then all. So a waiter may enter by one version, be handed the lock by the
# other and be released by either, and the reaper of one version frees what the other has claimed.
# The rule of EventBridge and the apps with guards follow later (docs/upgrades.md).

_SHARES: Final = ((0, 0.0), (300, 0.5), (800, 0.0), (1_000, 0.5), (1_400, 1.0))
"""Of calls that the new version serves, from this second on."""
_ALL_IS_NEW_SECONDS: Final = 1_400.0
_EITHER_SERVES: Final = "no call fails because of the other version"
_OF_REDRIVES: Final = {"held again", "lost", "LockLost"}


def _play_both_versions(world: World) -> None:
    faults = AccountFaults(
        functions=LambdaFaults(kills=0.002),
        events=EventFaults(lost=0.05, late=0.1, late_seconds=300.0, twice=0.05),
    )
    account = Account(world, faults)
    for name, handler in EARLIER.handlers.items():
        account.functions.add(_before(name), handler, EARLIER)
    account.functions.route = lambda name: _version_of(world, name)
    account.bus.uses(earlier()["reaper"])
    world.engine.after(_ALL_IS_NEW_SECONDS, account.bus.uses)
    load = half_an_hour(
        world,
        work_seconds=20.0,
        forms={"queue": 6, "kept alive": 3, "poll": 1},
        machines=_machine,
        stopped=0.3,
        redriven=0.5,
    )
    let_happen(account, load)
    require_all_free(account)
    world.judge.require(_EITHER_SERVES, not account.lost, f"lost without a redrive: {account.lost}")
    for name in sorted(set(world.judge.outcomes) - _ENDS_OF_WORK - _OF_REDRIVES):
        world.judge.require(
            _EITHER_SERVES, holds=False, what=f"{world.judge.outcomes[name]} {name}"
        )
    for name in EARLIER.handlers:
        served = {version: account.functions.counts[version] for version in (name, _before(name))}
        world.judge.require(
            _EITHER_SERVES, all(served.values()), f"not both versions ran: {served}"
        )


def _before(name: str) -> str:
    return f"{name} before"


def _version_of(world: World, name: str) -> str:
    share = next(share for begins, share in reversed(_SHARES) if world.seconds >= begins)
    is_new = name not in EARLIER.handlers or world.random.random() < share
    return name if is_new else _before(name)


def _machine(world: World, form: str) -> Json:
    """Apps are deployed after the service, one by one."""
    is_new = world.seconds >= _ALL_IS_NEW_SECONDS and world.random.random() < 0.5
    found: Json = machine(form) if is_new else earlier()["machines"][form]
    return found


def _is_of_any_run(claim: Claim, *, redrives: int, ended_at_ms: int) -> bool:
    told = replace(claim, redrives=claim.redrives or 0, written_at_ms=claim.written_at_ms or 0)
    return is_of_a_run_that_ended(told, redrives=redrives, ended_at_ms=ended_at_ms)


def _of_earlier(name: str, attribute: str, replacement: Any) -> AbstractContextManager[object]:  # noqa: ANN401 - any
    return patched((EARLIER.load(name), attribute, replacement))


DEPLOYMENT: Final = Scenario(
    number=15,
    title="a new version of the functions is deployed, rolled back and deployed again",
    load="50,000 guarded executions on 2,000 names in half an hour; for a half of it each call is "
    "served by one of two versions at random; a third is stopped, half of these redriven",
    promise=(
        "locks stay held, and waiters stay in line; running executions continue with the states "
        "that they began with (docs/upgrades.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.002, copies=0.002)),
    play=_play_both_versions,
    idle_bound=BOUND_SECONDS,
    conditions=lambda _scale: lambda_runtime(EARLIER),
    controls=(
        Control(
            name="the earlier version writes each holder under its whole owner_id",
            breaks="each item can be read",
            sabotage=lambda: _of_earlier("fairlock.protocol.schema", "shorten", lambda _text: None),
            scale=0.003,
        ),
        Control(
            name="a claim of the earlier version, which tells no run, counts as one of any run",
            breaks="no more holders than the limit",
            sabotage=lambda: patched((reap, "is_of_a_run_that_ended", _is_of_any_run)),
            seed=3,
            scale=0.02,
        ),
    ),
)
