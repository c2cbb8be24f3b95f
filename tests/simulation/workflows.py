"""Scenarios of guarded executions that come and go: 5, 8, 10, 11, 14 and 15."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

from fairlock.aws.executions import Execution, Liveness, StepFunctions
from fairlock.protocol import outcomes
from fairlock.protocol.claims import Claim, is_of_a_run_that_ended
from fairlock.protocol.outcomes import AlreadyHolder, Situation
from fairlock.store import acquire, reap
from tests.simulation import versions
from tests.simulation.faults import EventFaults, Faults, LambdaFaults, Network
from tests.simulation.guard import Account
from tests.simulation.scenario import Control, Scenario
from tests.simulation.versions import (
    EARLIER,
    LEASE_SECONDS,
    Json,
    earlier,
    lambda_runtime,
    machine,
    recorded,
)
from tests.simulation.workload import Load
from tests.simulation.world import World
from tests.support.weakened import Patch

_FALLBACK_SECONDS: Final = 300.0
_REQUEST_SECONDS: Final = 20.0
BOUND_SECONDS: Final = LEASE_SECONDS + 5 + _FALLBACK_SECONDS + _REQUEST_SECONDS
"""Lease + 5 s, one fallback period, and a call of acquire that is repeated."""


def _retrying(keeps: Callable[[Json, Json], bool]) -> Patch:
    """The recorded machines, whose states repeat only by rules that are kept."""

    def changed(part: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(part, list):
            return [changed(each) for each in part]
        if not isinstance(part, dict):
            return part
        made = {name: changed(value) for name, value in part.items()}
        if "Retry" in part:
            made["Retry"] = [rule for rule in part["Retry"] if keeps(part, rule)]
        return made

    return versions, "recorded", cache(lambda: changed(recorded()))


# Scenario 5: all status events are lost for an hour, while executions are stopped.


def _describes(liveness: Liveness) -> tuple[Patch, ...]:
    return ((StepFunctions, "describe", lambda *_: Execution(liveness)),)


LOST_EVENTS: Final = Scenario(
    number=5,
    title="all events are lost for an hour",
    promise=(
        "if a workflow dies and its event is lost, its lock is free after the lease + 5 s; a "
        "waiter in the queue notices within one more fallback period (docs/guard.md, Liveness)"
    ),
    faults=Faults(events=EventFaults(lost_spans=((0.0, 3_600.0),))),
    play=Load(
        names=3_000,
        seconds=3_600.0,
        work_seconds=40.0,
        forms={"queue": 8, "kept alive": 1, "poll": 1},
        stopped=0.3,
        frees_all=False,
    ).play,
    idle_bound=BOUND_SECONDS,
    controls=(
        Control(
            name="a running execution counts as dead once its lease is over",
            breaks="no more holders than the limit",
            patches=_describes(Liveness.OVER),
            scale=0.005,
        ),
        Control(
            name="a dead execution counts as running",
            breaks="no lock taken by no one",
            patches=_describes(Liveness.RUNNING),
            scale=0.005,
        ),
    ),
)


# Scenario 11: a third of the pushes by which waiters are told of their grants are lost.


def _judge_forgetting_grants(*args: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
    found = outcomes.judge(*args, **fields)
    return Situation.BUSY if isinstance(found, AlreadyHolder) else found


_FORGETS_ITSELF: Final = ((acquire, "judge", _judge_forgetting_grants),)
LOST_PUSHES: Final = Scenario(
    number=11,
    title="a third of all pushes are lost",
    promise=(
        "the waiter already has the lock; it notices after its fallback period of 5 minutes "
        "(docs/guarantees.md)"
    ),
    faults=Faults(network=Network(lost_replies=0.002), events=EventFaults(lost_pushes=1 / 3)),
    play=Load(
        executions=20_000, work_seconds=60.0, forms={"queue": 4, "kept alive": 1}, frees_all=False
    ).play,
    idle_bound=_FALLBACK_SECONDS + _REQUEST_SECONDS,
    controls=(
        Control(
            name="a waiter that asks again does not find its grant",
            breaks="no lock taken by no one",
            patches=_FORGETS_ITSELF,
            scale=0.01,
        ),
    ),
)


# Scenario 10: each handler is killed with 1 % at each request, and stands still before 2 %.
#
# A function dies before its request arrives, while it is under way, or before the answer is back.
# Its caller learns nothing but that, and repeats the call. One that stands still goes on up to 25
# s later, perhaps when its execution has been granted the lock by another call and has released
# it. The model's one known gap is such a run (`STALLED_CALL`): a grant in vain, which ends with
# its lease. Here it occurs once or more in each run, and no lock is idle for longer than is
# promised.


def _play_killed_handlers(world: World) -> None:
    account = Account(world)
    account.judges_releases = True
    forms = {"queue": 6, "kept alive": 2, "poll": 2}
    Load(work_seconds=20.0, forms=forms, stopped=0.1).happen(account)


def _is_no_release(state: Json, _rule: Json) -> bool:
    return not state["Arguments"]["FunctionName"].endswith(":release")


KILLED_HANDLERS: Final = Scenario(
    number=10,
    title="each handler is killed at each of its requests with 1 %, and stalls at 2 %",
    promise=(
        "whatever dies between two requests, the next call, the reaper, the next departure or the "
        "fallback poll heals it (docs/protocol.md, Dying between two requests)"
    ),
    faults=Faults(
        functions=LambdaFaults(kills=0.01, stalls=0.02),
        events=EventFaults(late=0.05, late_seconds=60.0, twice=0.05),
    ),
    play=_play_killed_handlers,
    idle_bound=BOUND_SECONDS,
    controls=(
        Control(
            name="a repeated acquire does not find its own grant",
            breaks="no lock taken by no one",
            patches=_FORGETS_ITSELF,
            scale=0.01,
        ),
        Control(
            name="a guard does not repeat a release whose function has died",
            breaks="released before the end",
            patches=(_retrying(_is_no_release),),
            seed=2,
            scale=0.01,
        ),
    ),
)


# Scenario 14: executions are stopped and redriven again and again; events come late and twice.
#
# A redriven execution without keep_alive works unguarded, as the documents say, and so believes to
# hold nothing. One with keep_alive holds again from the answer of its heartbeat on.

REDRIVES: Final = Scenario(
    number=14,
    title="redrive storms",
    promise=(
        "the reaper frees only acquisitions of that execution, and none of an execution that was "
        "redriven since; a heartbeat takes the lock again if it is free (docs/guard.md, Redrive)"
    ),
    faults=Faults(events=EventFaults(late=0.2, late_seconds=300.0, twice=0.1)),
    play=Load(
        executions=30_000,
        work_seconds=40.0,
        forms={"queue": 3, "kept alive": 7},
        stopped=0.5,
        stopped_within=90.0,
        redriven=0.9,
        redriven_within=90.0,
        most_redrives=5,
    ).play,
    idle_bound=BOUND_SECONDS,
    controls=(
        Control(
            name="an event frees what a later run has claimed",
            breaks="no more holders than the limit",
            patches=((reap, "is_of_a_run_that_ended", lambda *_args, **_ended: True),),
        ),
    ),
)


# Scenario 8: other functions of the account take all of Lambda's concurrency, again and again.
#
# Lambda then refuses the service's functions too. The guards repeat such calls for many minutes,
# and the reaper's batches stay in its queue.

_TAKEN_SECONDS: Final = 120.0
_LONGEST_PAUSE_SECONDS: Final = 20.0
_TAKEN: Final = {100.0: 1_000, 500.0: 999, 900.0: 1_000, 1_300.0: 998}
"""How many of 1,000 concurrent invocations, by the second at which others take them."""
_ENDS_OF_WORK: Final = {"granted", "succeeded", "WorkFailed", "aborted", "timed_out"}
_REPEATED: Final = "no guard fails because Lambda is busy"


def _play_at_the_limit(world: World) -> None:
    account, forms = Account(world), {"queue": 6, "kept alive": 3, "poll": 1}
    Load(work_seconds=10.0, forms=forms, stopped=0.05).happen(account)
    _require_no_outcome_beside(_ENDS_OF_WORK, world, _REPEATED)
    world.judge.require(_REPEATED, account.functions.counts["throttled"], "no call was refused")


def _require_no_outcome_beside(usual: set[str], world: World, promise: str) -> None:
    outcomes = world.judge.outcomes
    for name in sorted(set(outcomes) - usual):
        world.judge.require(promise, holds=False, what=f"{outcomes[name]} {name}")


def _is_of_another_error(_state: Json, rule: Json) -> bool:
    return "Lambda.TooManyRequestsException" not in rule["ErrorEquals"]


CONCURRENCY: Final = Scenario(
    number=8,
    title="Lambda at its concurrency limit",
    promise=(
        "calls are late while Lambda's concurrency is exhausted (docs/monitoring.md, Throttles), "
        "and an error grants nothing and is safe to repeat (docs/guarantees.md)"
    ),
    faults=Faults(
        functions=LambdaFaults(
            taken=tuple((at, at + _TAKEN_SECONDS, number) for at, number in _TAKEN.items())
        )
    ),
    play=_play_at_the_limit,
    idle_bound=_TAKEN_SECONDS + _LONGEST_PAUSE_SECONDS + 30,
    controls=(
        Control(
            # Eight repeats, for a minute.
            name="a guard repeats a refused call no longer than any other",
            breaks=_REPEATED,
            patches=(_retrying(_is_of_another_error),),
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
    account = Account(world)
    for name, handler in EARLIER.handlers.items():
        account.functions.add(_before(name), handler, EARLIER)
    account.functions.route = lambda name: _version_of(world, name)
    account.bus.uses(earlier()["reaper"])
    world.engine.after(_ALL_IS_NEW_SECONDS, account.bus.uses)
    load = Load(
        work_seconds=20.0,
        forms={"queue": 6, "kept alive": 3, "poll": 1},
        machines=_machine,
        stopped=0.3,
        redriven=0.5,
    )
    with lambda_runtime(EARLIER):
        load.happen(account)
    judge = world.judge
    judge.require(_EITHER_SERVES, not account.lost, f"lost without a redrive: {account.lost}")
    _require_no_outcome_beside(_ENDS_OF_WORK | _OF_REDRIVES, world, _EITHER_SERVES)
    for name in EARLIER.handlers:
        served = {version: account.functions.counts[version] for version in (name, _before(name))}
        judge.require(_EITHER_SERVES, all(served.values()), f"not both versions ran: {served}")


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


DEPLOYMENT: Final = Scenario(
    number=15,
    title="a new version of the functions is deployed, rolled back and deployed again",
    promise=(
        "locks stay held, and waiters stay in line; running executions continue with the states "
        "that they began with (docs/upgrades.md)"
    ),
    faults=Faults(
        network=Network(lost_replies=0.002, copies=0.002),
        functions=LambdaFaults(kills=0.002),
        events=EventFaults(lost=0.05, late=0.1, late_seconds=300.0, twice=0.05),
    ),
    play=_play_both_versions,
    idle_bound=BOUND_SECONDS,
    controls=(
        Control(
            name="the earlier version writes each holder under its whole owner_id",
            breaks="each item can be read",
            patches=((EARLIER.load("fairlock.protocol.schema"), "shorten", lambda _text: None),),
            scale=0.003,
        ),
        Control(
            name="a claim of the earlier version, which tells no run, counts as one of any run",
            breaks="no more holders than the limit",
            patches=((reap, "is_of_a_run_that_ended", _is_of_any_run),),
            seed=3,
            scale=0.02,
        ),
    ),
)
