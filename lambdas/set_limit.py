"""Lambda entry point: limit, pause or resume a lock, for people without access to the table.

The audit line is that of the event `CeilingChanged`, which `observe_event` logs, as for a release
by force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlock.store.administration import change_ceiling
from fairlock.wire.answers import set_limit_answer
from fairlock.wire.requests import parse_set_limit
from lambdas.runtime import lock_context, logger, make_clients, metrics, reports_faults

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

make_clients("dynamodb", "stepfunctions")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Changes the ceiling; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_set_limit(event)
    change_ceiling(lock_context(context), request)
    return set_limit_answer(request)
