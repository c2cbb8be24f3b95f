"""The guard's arguments, checked at synth by the rules of the service."""

from __future__ import annotations

import math
from typing import Final, TypeVar

from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.construct_arguments import check_states, whole_seconds
from fairlock.cdk.places import first_difference
from fairlock.cdk.service.imported_service import ILockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.cdk.workflow_variable import is_jsonata
from fairlock.errors import InvalidRequest
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS
from fairlock.wire.rules import (
    LEASE_SECONDS,
    LIMIT,
    SHORTEST_FALLBACK_SECONDS,
    Rule,
    require,
)

EXPRESS_SECONDS: Final = 5 * 60
HEARTBEATS_A_LEASE: Final = 3

_FUNCTIONS: Final = ("acquire_function", "heartbeat_function", "release_function")
_T = TypeVar("_T")


def checked(field: str, rule: Rule, value: _T) -> _T:
    """The value, if it follows the service's rule for it.

    Raises:
        InvalidRequest: names the field and the rule.
    """
    require(field, rule, value, show_text=True)
    return value


def check_service(service: ILockService, *, scope: Construct) -> None:
    """Checks that there are functions to call, in the account and region of the scope."""
    if any(not hasattr(getattr(service, name, None), "function_arn") for name in _FUNCTIONS):
        rule = "must be a LockService of this app, or one of LockService.from_stack(…)"
        raise InvalidRequest(field="service", rule=rule, value=service)
    stack = next((part for part in reversed(scope.node.scopes) if isinstance(part, Stack)), None)
    difference = stack and first_difference(stack, service.acquire_function.env)
    if difference:
        kind, here, there = difference
        rule = (
            f"must be in the workflow's {kind} {here}: "
            "only there can it wake those that wait, and ask whether they still run"
        )
        raise InvalidRequest(field="service", rule=rule, value=there)


def name_of_service(service: ILockService) -> str:
    """The same for every guard of one lock service, imported or not."""
    if isinstance(service, SharedLockService):
        return service.stack_name
    function = service.acquire_function
    arn = function.function_arn
    return function.node.path if Token.is_unresolved(arn) else arn


def check_work(task: sfn.IChainable, on_timeout: sfn.IChainable | None) -> None:
    """Checks what is guarded, and what is done instead when the wait is over."""
    check_states("task", task)
    if on_timeout is None:
        return
    check_states("on_timeout", on_timeout)
    if on_timeout.start_state is task.start_state:
        rule = "must begin with another state than the task, which would run without the lock"
        raise InvalidRequest(field="on_timeout", rule=rule, value=task.start_state.state_id)


def check_flag(field: str, value: object) -> None:
    """Checks that an argument is True or False."""
    if not isinstance(value, bool):
        raise InvalidRequest(field=field, rule="must be True or False", value=value)


def checked_jsonata(field: str, expression: str) -> str:
    """One JSONata expression that is not empty."""
    inner = expression[2:-2]
    if not inner.strip() or "{%" in inner or "%}" in inner:
        rule = "must be one JSONata expression as a whole: '{% 'customer/' & $states.input.id %}'"
        raise InvalidRequest(field=field, rule=rule, value=expression)
    return expression


def checked_limit(limit: int | str) -> int | str:
    """A number of permits, or JSONata that gives one when the workflow runs."""
    if is_jsonata(limit):
        return checked_jsonata("limit", str(limit))
    if isinstance(limit, float) and math.isfinite(limit) and Token.is_unresolved(limit):
        rule = (
            "must be a number or JSONata, '{% $states.input.permits %}': a token has no value yet"
        )
        raise InvalidRequest(field="limit", rule=rule, value="a token")
    return checked("limit", LIMIT, limit)


def checked_lease_seconds(lease: Duration) -> int:
    """Whole seconds, from one second to twelve hours."""
    return checked("lease", LEASE_SECONDS, whole_seconds("lease", lease))


def checked_max_wait_seconds(
    max_wait: Duration, *, shortest_seconds: int, longest: Duration, express: bool
) -> int:
    """Zero, or whole seconds within the bounds of the way to wait and of the kind of workflow."""
    seconds = whole_seconds("max_wait", max_wait)
    if 0 < seconds < shortest_seconds:
        rule = (
            f"must be 0 to skip a busy lock, or at least {shortest_seconds} s, so that the service "
            "has time to answer; Waiting.poll() also takes less"
        )
    elif express and seconds >= EXPRESS_SECONDS:
        rule = "must be under 5 minutes, after which Step Functions ends an Express workflow"
    elif seconds > longest.to_seconds():
        rule = (
            f"must be at most {longest.to_human_string()}: "
            "a longer wait may fill the history of the execution, which ends at 25,000 events"
        )
    else:
        return seconds
    raise InvalidRequest(field="max_wait", rule=rule, value=f"{seconds} s")


def checked_fallback_seconds(fallback: Duration) -> int:
    """Whole seconds after which a waiter that sleeps in the queue asks again."""
    seconds = whole_seconds("fallback", fallback)
    if not SHORTEST_FALLBACK_SECONDS <= seconds <= LONGEST_FALLBACK_SECONDS:
        rule = f"must be from {SHORTEST_FALLBACK_SECONDS} s to {LONGEST_FALLBACK_SECONDS} s (12 h)"
        raise InvalidRequest(field="fallback", rule=rule, value=f"{seconds} s")
    return seconds


def checked_keep_alive_seconds(
    keep_alive: Duration | None, *, lease_seconds: int, express: bool
) -> int | None:
    """Whole seconds between two heartbeats, at most a third of the lease; None for no heartbeat.

    Raises:
        InvalidRequest: names the rule.
    """
    if keep_alive is None:
        return None
    seconds = whole_seconds("keep_alive", keep_alive)
    if express:
        rule = (
            "must be left out in an Express workflow: Step Functions has no task tokens there, "
            "so nothing could end the heartbeat; choose a lease that is longer than the work"
        )
        raise InvalidRequest(field="keep_alive", rule=rule, value=keep_alive.to_human_string())
    longest_seconds = lease_seconds // HEARTBEATS_A_LEASE
    if not 1 <= seconds <= longest_seconds:
        rule = (
            f"must be from 1 s to a third of the lease of {lease_seconds} s, "
            "so that two heartbeats may be lost"
        )
        raise InvalidRequest(field="keep_alive", rule=rule, value=f"{seconds} s")
    return seconds
