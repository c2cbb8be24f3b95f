"""Mutants of claims, of the reaper and of keep_alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairlock.protocol import claims
from fairlock.protocol.schema import DONE, FENCED
from fairlock.store import acquire, keep_alive, reap, release
from fairlock.store.reap import ExecutionEnded
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
from tests.support.weakened import Patch, edited, weak

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


def _pass_without_asking(_context: object, ended: ExecutionEnded) -> object:
    return reap._SECOND_PASS if ended.second_pass else reap._FIRST_PASS  # noqa: SLF001 - as it does


def _choosing(before: str) -> Patch:
    """Chooses a pass in this way, where the real code asks whether the execution runs."""
    runs = "if runs:\n"
    return edited(reap, "_choose_pass", runs, f"{before}\n    {runs}")


_CHOOSING_BLINDLY: Final = _choosing("return reap_pass")
"""As before the answer "running" counted: it may be outdated."""
_END_CLAIM: Final = "end_claim(context, request, request.execution_arn).task_token"
_GIVE_BACK: Final = "give_back(context, request)"
_NOT_GIVEN_UP_BY_ME: Final = "(attribute_not_exists(#last_given_up) OR #last_given_up <> :me)"


MUTANTS: Final[dict[str, Mutant]] = {
    "an event frees what a later run of its execution has claimed": Mutant(
        Invariant.SPARED,
        replace(_REDRIVEN, actors=(ANNA, TOLD, TOLD_AGAIN)),
        (reap, "is_of_a_run_that_ended", lambda claim, **_: claim.redrives is not None),
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
        Invariant.SPARED, _FORGED, _CHOOSING_BLINDLY
    ),
    "a message that invents a redrive is believed": Mutant(
        Invariant.SPARED,
        replace(_FORGED, actors=(ANNA, FORGED_LATER)),
        _choosing("if execution.redrives < ended.redrives: return reap_pass"),
    ),
    "a forged message takes a waiter of a running execution out of its queue": Mutant(
        Invariant.WAKE_UP,
        replace(_FORGED, actors=(BEN, ANNA, FORGED_SECOND), begin=("ben", "anna")),
        _CHOOSING_BLINDLY,
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
        Invariant.HARMED,
        REDRIVEN_IN_THAT_MOMENT,
        edited(acquire, "_react", "grant if is_fresh", "grant if True"),
    ),
    "claims whose work has ended are skipped": Mutant(
        Invariant.FREE,
        _RELEASE_DIES,
        edited(
            claims,
            "claims_of",
            "attribute_not_exists(#done)",
            "attribute_not_exists(#ended) AND attribute_not_exists(#done)",
        ),
    ),
    "a release ends the claim after it has freed the lock": Mutant(
        Invariant.FALSE_LOSS,
        _RENEWED,
        edited(
            release,
            "release",
            f"task_token = {_END_CLAIM}\n        answer = {_GIVE_BACK}",
            f"answer = {_GIVE_BACK}\n        task_token = {_END_CLAIM}",
        ),
    ),
    "a heartbeat takes a lock again whose work has failed": Mutant(
        Invariant.FREE,
        _WORK_FAILS,
        (keep_alive, "has_ended", lambda _item: False),
        (keep_alive, "is_fenced", lambda item: FENCED in item or DONE in item),
        edited(
            claims, "_without_fence", 'all_of("#fenced = :stage", _NOT_ENDED)', '":stage = :stage"'
        ),
    ),
    "a heartbeat ignores that the work has ended": Mutant(
        Invariant.FALSE_LOSS, _RENEWED, (keep_alive, "has_ended", lambda _item: False)
    ),
    "there is no second reap pass": Mutant(
        Invariant.FREE, ExecutionScene("one pass", (ANNA, FIRST), (Fault.STOP,))
    ),
}
