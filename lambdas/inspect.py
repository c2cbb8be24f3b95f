"""Lambda entry point: tell who holds and who waits, for people without access to the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlock.store.administration import describe, list_locks
from fairlock.wire.answers import describe_answer, list_answer
from fairlock.wire.requests import ListRequest, parse_inspect
from lambdas.runtime import lock_context, logger, make_clients, metrics, reports_faults

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_TIME_TO_ANSWER_MS: Final = 5_000
"""The rest of the invocation at which a list ends, to be continued by the next call."""

make_clients("dynamodb")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
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
