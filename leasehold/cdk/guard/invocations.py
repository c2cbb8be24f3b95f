"""How a guard calls the service: which state a call is, and what of it is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from leasehold.cdk.workflow_variable import GuardVariable, jsonata
from leasehold.errors import InvalidRequest, LockLost

UNCHANGED: Final = jsonata("$states.input")
ERROR_OUTPUT: Final = jsonata("$states.errorOutput")
TASK_TOKEN: Final = jsonata("$states.context.Task.Token")
ANY_ERROR: Final = "States.ALL"
TIMEOUT: Final = "States.Timeout"
NOT_WORTH_REPEATING: Final = (
    InvalidRequest.__name__,
    LockLost.__name__,
    "States.QueryEvaluationError",
)

_REQUEST_TIMEOUT: Final = Duration.seconds(30)
"""The function's own 20 s, and a cold start."""
_REPEATS: Final = 8
_REPEATS_IN_EXPRESS: Final = 3
"""An Express workflow ends after 5 minutes, and with it the result of the work."""
_REPEATS_WHEN_THROTTLED: Final = 100
_LONGEST_PAUSE_SECONDS: Final = 20


def invoke(
    scope: Construct,
    variable: GuardVariable,
    purpose: str,
    function: lambda_.IFunction,
    *,
    payload: Mapping[str, object],
    assign: Mapping[str, Any] | None = None,
    outputs: str = UNCHANGED,
    integration_pattern: sfn.IntegrationPattern | None = None,
    timeout: Duration = _REQUEST_TIMEOUT,
) -> tasks.LambdaInvoke:
    """A call that is not repeated, and hands on its input if nothing else is said."""
    return tasks.LambdaInvoke.jsonata(
        scope,
        purpose.title().replace(" ", ""),
        state_name=variable.state_name(purpose),
        lambda_function=function,
        payload=sfn.TaskInput.from_object(payload),
        outputs=outputs,
        assign=assign,
        task_timeout=sfn.Timeout.duration(timeout),
        integration_pattern=integration_pattern,
        retry_on_service_exceptions=False,
    )


def repeat_unknown(call: tasks.LambdaInvoke, *, express: bool) -> None:
    """Repeats what failed with an unknown outcome, which every call of the service may be."""
    never_repeat(call, NOT_WORTH_REPEATING)
    if not express:
        repeat(call, "Lambda.TooManyRequestsException", most=_REPEATS_WHEN_THROTTLED)
    repeat(call, ANY_ERROR, most=_REPEATS_IN_EXPRESS if express else _REPEATS)


def never_repeat(call: tasks.LambdaInvoke, errors: Sequence[str]) -> None:
    """What a later, wider rule would repeat. The first rule that matches an error counts."""
    call.add_retry(errors=list(errors), max_attempts=0)


def repeat(
    call: tasks.LambdaInvoke,
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
