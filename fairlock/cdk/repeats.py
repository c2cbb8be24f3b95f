"""Which errors of a task state are repeated, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.workflow_variable import jsonata
from fairlock.errors import InvalidRequest, LockLost

UNCHANGED: Final = jsonata("$states.input")
ERROR_OUTPUT: Final = jsonata("$states.errorOutput")
ANY_ERROR: Final = "States.ALL"
TIMEOUT: Final = "States.Timeout"
EVALUATION_ERROR: Final = "States.QueryEvaluationError"
"""JSONata that failed in any field of a state, `Assign` and `Output` included. Task, Map and
Parallel states may catch and repeat it (developer guide, "Transforming data with JSONata")."""
NOT_WORTH_REPEATING: Final = (InvalidRequest.__name__, LockLost.__name__)

_REPEATS: Final = 8
_REPEATS_IN_EXPRESS: Final = 3
"""An Express workflow ends after 5 minutes, and with it the result of the work."""
_REPEATS_WHEN_THROTTLED: Final = 100
_LONGEST_PAUSE_SECONDS: Final = 20


def repeat_unknown(call: sfn.TaskStateBase, *, express: bool) -> None:
    """Repeats a call whose outcome is unknown: every call of the service may be made twice."""
    never_repeat(call, NOT_WORTH_REPEATING)
    if not express:
        repeat(call, "Lambda.TooManyRequestsException", most=_REPEATS_WHEN_THROTTLED)
    repeat(call, ANY_ERROR, most=_REPEATS_IN_EXPRESS if express else _REPEATS)


def never_repeat(call: sfn.TaskStateBase, errors: Sequence[str]) -> None:
    """Excepts errors from later, wider rules: the first rule that matches an error counts."""
    call.add_retry(errors=list(errors), max_attempts=0)


def repeat(
    call: sfn.TaskStateBase,
    error: str,
    *,
    most: int = _REPEATS,
    longest_pause_seconds: int = _LONGEST_PAUSE_SECONDS,
) -> None:
    """Repeats after pauses that double, each shortened at random."""
    call.add_retry(
        errors=[error],
        interval=Duration.seconds(1),
        backoff_rate=2,
        max_delay=Duration.seconds(min(longest_pause_seconds, _LONGEST_PAUSE_SECONDS)),
        max_attempts=most,
        jitter_strategy=sfn.JitterType.FULL,
    )
