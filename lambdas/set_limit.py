"""Lambda entry point: limit, pause or resume a lock; the event `CeilingChanged` is logged."""

from __future__ import annotations

from typing import Any

from fairlock.store.administration import change_ceiling
from fairlock.wire.answers import set_limit_answer
from fairlock.wire.requests import parse_set_limit
from lambdas.runtime import Invocation, entry_point, lock_context


@entry_point("dynamodb", "stepfunctions")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Changes the ceiling; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_set_limit(event)
    change_ceiling(lock_context(context), request)
    return set_limit_answer(request)
