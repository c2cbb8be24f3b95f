"""Which errors a retrier or catcher matches.

AWS (developer guide, "Handling errors in Step Functions workflows", Error names): States.Runtime
is never retried nor caught; States.ALL matches everything else but States.DataLimitExceeded;
States.TaskFailed matches everything but timeouts; a missing heartbeat (States.HeartbeatTimeout) is
also a States.Timeout.

Emulator: States.ALL catches States.Runtime and States.DataLimitExceeded, and States.Timeout does
not catch a missing heartbeat.

This: decides by those rules.
"""

from collections.abc import Sequence

from ministack.services import stepfunctions

_UNCATCHABLE = "States.Runtime"
_ONLY_BY_NAME = "States.DataLimitExceeded"
_TIMEOUTS = ("States.Timeout", "States.HeartbeatTimeout")


def apply() -> None:
    """Match error names by AWS's rules."""
    stepfunctions._error_matches = matches


def matches(error_equals: Sequence[str], error: str) -> bool:
    """Whether a retrier or catcher with these ErrorEquals takes the error."""
    if error == _UNCATCHABLE:
        return False
    if error in error_equals or ("States.ALL" in error_equals and error != _ONLY_BY_NAME):
        return True
    if error in _TIMEOUTS:
        return "States.Timeout" in error_equals
    return "States.TaskFailed" in error_equals and error != _ONLY_BY_NAME
