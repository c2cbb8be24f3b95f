"""Lambda entry point: release a lock."""

from __future__ import annotations

from typing import Any

from fairlock.store.release import release
from fairlock.wire.answers import release_answer
from fairlock.wire.requests import parse_release
from lambdas.runtime import (
    Invocation,
    entry_point,
    lock_context,
    observe_release,
    require_same_account,
)


@entry_point("dynamodb", "stepfunctions")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Releases or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_release(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    answer = release(lock_context(context), request)
    observe_release(request, answer)
    return release_answer(answer)
