"""Mutants of claims, of the reaper and of keep_alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fairlock.protocol import claims
from fairlock.protocol.model import ReleaseRequest
from fairlock.protocol.outcomes import AlreadyHolder, NotHeld, Released, judge
from fairlock.protocol.schema import DONE, FENCED
from fairlock.protocol.table_requests import Put
from fairlock.store import acquire, keep_alive, reap, release
from fairlock.store.context import LockContext
from tests.model.executions.actors import Heartbeats
from tests.model.executions.scenes import (
    ANNA,
    BEN,
    FAILING,
    FIRST,
    FORGED,
    FORGED_LATER,
    FORGED_SECOND,
    LAST,
    REDRIVEN_IN_THAT_MOMENT,
    RENEWING,
    SECOND,
    TOLD,
    TOLD_AGAIN,
    ZITA,
    ExecutionScene,
    Invariant,
)
from tests.model.scene import Fault, Mutant
from tests.support.weakened import weak

_CHOOSE: Final = reap._choose_pass  # noqa: SLF001 - a mutant goes on with it
_FORGED: Final = ExecutionScene("forged", (ANNA, FORGED), begin=("anna",))
_IN_FLIGHT: Final = ExecutionScene("in flight", (ANNA, FIRST, SECOND), (Fault.STOP,))
_MAP: Final = ExecutionScene(
    "a Map", (ANNA, ZITA, FIRST, SECOND), (Fault.STOP_AT_REST,), begin=("anna", "zita")
)
_REDRIVEN: Final = replace(_IN_FLIGHT, faults=(Fault.STOP, Fault.REDRIVE))
_RENEWED: Final = ExecutionScene("renewed", (RENEWING, Heartbeats(workflow=RENEWING, most=2)))
_WORK_FAILS: Final = ExecutionScene(
    "the work fails", (FAILING, Heartbeats(workflow=FAILING, most=1))
)
_RELEASE_DIES: Final = ExecutionScene(
    "a release dies", (RENEWING, FIRST, SECOND), (Fault.STOP, Fault.KILL), begin=("anna",)
)


def _release_that_ends_the_claim_late(
    context: LockContext, request: ReleaseRequest, **_seen: object
) -> Released | NotHeld:
    answer = release.give_back(context, request)
    task_token = release.end_claim(context, request, request.execution_arn or "").task_token
    if task_token is not None:
        context.workflows.end_heartbeat(task_token, answer)
    return answer


def _claims_whose_work_goes_on(execution_arn: str, *, before: claims.ReapStage) -> Any:  # noqa: ANN401 - a query
    query = claims.claims_of(execution_arn, before=before)
    names = {**query.names, "#ended": "ended"}
    return replace(query, names=names, only=f"attribute_not_exists(#ended) AND ({query.only})")


def _register_again_without_asking(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
    transaction = claims.reacquire_after_redrive(*args, **kwargs)
    assert isinstance(transaction.other, Put)
    return replace(transaction, other=Put(item=transaction.other.item))


def _judge_all_grants_fresh(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
    verdict = judge(*args, **kwargs)
    return replace(verdict, is_fresh=True) if isinstance(verdict, AlreadyHolder) else verdict


def _pass_of_an_execution_that_runs(context: Any, ended: Any) -> Any:  # noqa: ANN401 - as the real one
    """As before the answer "running" counted: it may be outdated."""
    redrives = context.workflows.describe(ended.execution_arn).redrives
    return (
        _pass_without_asking(context, ended)
        if redrives <= ended.redrives
        else _CHOOSE(context, ended)
    )


def _pass_of_a_later_run(context: Any, ended: Any) -> Any:  # noqa: ANN401 - as the real one
    redrives = context.workflows.describe(ended.execution_arn).redrives
    return (
        _pass_without_asking(context, ended)
        if redrives < ended.redrives
        else _CHOOSE(context, ended)
    )


def _pass_without_asking(_context: Any, ended: Any) -> Any:  # noqa: ANN401 - as the real one
    return reap._SECOND_PASS if ended.second_pass else reap._FIRST_PASS  # noqa: SLF001 - same


_NOT_GIVEN_UP_BY_ME: Final = "(attribute_not_exists(#last_given_up) OR #last_given_up <> :me)"


def _of_any_run(claim: claims.Claim, **_ended: int) -> bool:
    return claim.redrives is not None


MUTANTS: Final[dict[str, Mutant]] = {
    "an event frees what a later run of its execution has claimed": Mutant(
        Invariant.SPARED,
        replace(_REDRIVEN, actors=(ANNA, TOLD, TOLD_AGAIN)),
        (reap, "is_of_a_run_that_ended", _of_any_run),
    ),
    "a late call of a run that ended takes the claim of the redriven one for its own": Mutant(
        Invariant.SPARED,
        replace(_REDRIVEN, actors=(ANNA, TOLD, TOLD_AGAIN)),
        weak(
            acquire,
            "write_claim",
            "(attribute_not_exists(#redrives) OR #redrives <= :redrives)",
        ),
    ),
    "a forged message about an execution that runs is believed": Mutant(
        Invariant.SPARED, _FORGED, (reap, "_choose_pass", _pass_of_an_execution_that_runs)
    ),
    "a message that invents a redrive is believed": Mutant(
        Invariant.SPARED,
        replace(_FORGED, actors=(ANNA, FORGED_LATER)),
        (reap, "_choose_pass", _pass_of_a_later_run),
    ),
    "a forged message takes a waiter of a running execution out of its queue": Mutant(
        Invariant.WAKE_UP,
        replace(_FORGED, actors=(BEN, ANNA, FORGED_SECOND), begin=("ben", "anna")),
        (reap, "_choose_pass", _pass_of_an_execution_that_runs),
    ),
    "a second pass does not ask when the execution ended": Mutant(
        Invariant.FREE,
        replace(_IN_FLIGHT, actors=(ANNA, BEN, LAST, FORGED_SECOND), begin=("ben",)),
        (reap, "_EARLIEST_MS", claims.SECOND_PASS_MS),
        # Others who give up overwrite the mark that the reaper has left of the dead owner.
        weak(acquire, "acquire_permit", _NOT_GIVEN_UP_BY_ME),
    ),
    "acquire makes no claim": Mutant(
        Invariant.FREE,
        _IN_FLIGHT,
        (acquire, "register_claim", lambda _context, request, _execution_arn: request),
    ),
    "the waiters of the dead are not deleted first": Mutant(
        Invariant.SKIPPED,
        _MAP,
        (reap, "_stop_waiting", lambda _context, _claim: False),
    ),
    "a claim that was written since Step Functions was asked is fenced": Mutant(
        Invariant.SPARED,
        _REDRIVEN,
        weak(reap, "fence_claim", "#revision = :seen", instead="attribute_exists(#revision)"),
    ),
    "an acquire ignores that its claim is fenced": Mutant(
        Invariant.SPARED,
        _REDRIVEN,
        weak(acquire, "write_claim", "attribute_not_exists(#fenced)"),
    ),
    "a reap pass does not ask whether the execution was redriven": Mutant(
        Invariant.SPARED, _REDRIVEN, (reap, "_choose_pass", _pass_without_asking)
    ),
    "a repeated acquire is told of its grant and writes nothing": Mutant(
        Invariant.HARMED, REDRIVEN_IN_THAT_MOMENT, (acquire, "judge", _judge_all_grants_fresh)
    ),
    "claims whose work has ended are skipped": Mutant(
        Invariant.FREE, _RELEASE_DIES, (reap, "claims_of", _claims_whose_work_goes_on)
    ),
    "a release ends the claim after it has freed the lock": Mutant(
        Invariant.FALSE_LOSS,
        _RENEWED,
        (release, "release", _release_that_ends_the_claim_late),
    ),
    "a heartbeat takes a lock again whose work has failed": Mutant(
        Invariant.FREE,
        _WORK_FAILS,
        (keep_alive, "has_ended", lambda _item: False),
        (keep_alive, "is_fenced", lambda item: FENCED in item or DONE in item),
        (keep_alive, "reacquire_after_redrive", _register_again_without_asking),
    ),
    "a heartbeat ignores that the work has ended": Mutant(
        Invariant.FALSE_LOSS, _RENEWED, (keep_alive, "has_ended", lambda _item: False)
    ),
    "there is no second reap pass": Mutant(
        Invariant.FREE, ExecutionScene("one pass", (ANNA, FIRST), (Fault.STOP,))
    ),
}
