"""Lambda entry point: tell who holds and who waits, for people without access to the table."""

from __future__ import annotations

from typing import Any, Final

from fairlock.store.administration import describe, list_locks
from fairlock.wire.answers import describe_answer, list_answer
from fairlock.wire.requests import ListRequest, parse_inspect
from lambdas.runtime import Invocation, entry_point, lock_context

_TIME_TO_ANSWER_MS: Final = 5_000
"""The rest of the invocation at which a list ends, to be continued by the next call."""


@entry_point("dynamodb")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Describes one lock, or lists those that are in use; raises InvalidRequest."""
    request = parse_inspect(event)
    locks = lock_context(context)
    if not isinstance(request, ListRequest):
        return describe_answer(request, describe(locks, request))
    found = list_locks(locks, request.prefix, after=request.after)
    return list_answer(
        found,
        free=request.free,
        has_time=lambda: context.get_remaining_time_in_millis() > _TIME_TO_ANSWER_MS,
    )
