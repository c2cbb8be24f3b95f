"""Lambda entry point: release a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlock.store.release import release
from fairlock.wire.answers import release_answer
from fairlock.wire.requests import parse_release
from lambdas.runtime import (
    lock_context,
    logger,
    make_clients,
    metrics,
    observe_release,
    reports_faults,
    require_same_account,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

make_clients("dynamodb", "stepfunctions")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Releases or refuses; raises InvalidRequest or LockStoreUnavailable."""
    request = parse_release(event)
    require_same_account(request.execution_arn, function_arn=context.invoked_function_arn)
    answer = release(lock_context(context), request)
    observe_release(request, answer)
    return release_answer(answer)
