"""The guard's arguments, checked at synth by the rules of the service."""

from __future__ import annotations

from typing import Final, TypeVar

from aws_cdk import Duration
from voluptuous import Invalid

from leasehold.cdk.workflow_variable import is_jsonata
from leasehold.errors import InvalidRequest
from leasehold.wire.rules import LEASE_SECONDS, LIMIT, Rule

EXPRESS_SECONDS: Final = 5 * 60
SHORTEST_FALLBACK_SECONDS: Final = 10
LONGEST_FALLBACK_SECONDS: Final = 12 * 3600
"""A waiter's item is retained for 48 h after its last call, which must stay far above a period."""
HEARTBEATS_A_LEASE: Final = 3

_T = TypeVar("_T")


def checked(field: str, rule: Rule, value: _T) -> _T:
    """The value, if it follows the service's rule for it.

    Raises:
        InvalidRequest: names the field and the rule.
    """
    try:
        rule(value)
    except Invalid as error:
        raise InvalidRequest(field=field, rule=error.msg, value=value) from None
    return value


def checked_limit(limit: int | str) -> int | str:
    """A number of permits, or JSONata that gives one when the workflow runs."""
    return limit if is_jsonata(limit) else checked("limit", LIMIT, limit)


def checked_lease_seconds(lease: Duration) -> int:
    """Whole seconds, from one second to twelve hours."""
    return checked("lease", LEASE_SECONDS, _whole_seconds("lease", lease))


def checked_max_wait_seconds(
    max_wait: Duration, *, shortest_seconds: int, longest: Duration, express: bool
) -> int:
    """Whole seconds within the bounds of the way to wait and of the kind of workflow."""
    seconds = _whole_seconds("max_wait", max_wait)
    if seconds < shortest_seconds:
        rule = (
            f"must be at least {shortest_seconds} s, so that the service has time to answer; "
            "Waiting.poll() also takes less"
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
    seconds = _whole_seconds("fallback", fallback)
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
    if express:
        rule = (
            "must be left out in an Express workflow: Step Functions has no task tokens there, "
            "so nothing could end the heartbeat; choose a lease that is longer than the work"
        )
        raise InvalidRequest(field="keep_alive", rule=rule, value=keep_alive.to_human_string())
    seconds = _whole_seconds("keep_alive", keep_alive)
    longest_seconds = lease_seconds // HEARTBEATS_A_LEASE
    if not 1 <= seconds <= longest_seconds:
        rule = (
            f"must be from 1 s to a third of the lease of {lease_seconds} s, "
            "so that two heartbeats may be lost"
        )
        raise InvalidRequest(field="keep_alive", rule=rule, value=f"{seconds} s")
    return seconds


def _whole_seconds(field: str, duration: Duration) -> int:
    milliseconds = duration.to_milliseconds()
    if milliseconds % 1000:
        rule = "must be a whole number of seconds"
        raise InvalidRequest(field=field, rule=rule, value=f"{milliseconds} ms")
    return int(milliseconds // 1000)
