"""Lambda entry point: release a holder by force, for people without access to the table.

The audit line is that of the event `ReleasedByForce`. The request id beside it leads to the
principal: CloudTrail records it if data events of this function are switched on.
"""

from __future__ import annotations

from typing import Any

from fairlock.names import LogMessage
from fairlock.store.administration import force_release
from fairlock.wire.answers import force_release_answer
from fairlock.wire.requests import parse_force_release
from lambdas.runtime import Invocation, caller_fields, entry_point, lock_context, logger


@entry_point("dynamodb", "stepfunctions")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Releases that grant or nothing; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_force_release(event)
    answer = force_release(lock_context(context), request)
    if answer is None:
        asked = {"fencing_token": request.fencing_token, "requested_by": request.requested_by}
        logger.warning(
            LogMessage.HOLDER_CHANGED, extra={**caller_fields(request.lock_name), **asked}
        )
    return force_release_answer(request, answer)
