"""Lambda entry point: reserve a slot of a pace. Its caller waits until the slot begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlock.store.turns import KnownPaces, Turn
from fairlock.wire.answers import pace_answer
from fairlock.wire.requests import parse_pace
from lambdas.runtime import (
    lock_context,
    logger,
    make_clients,
    metrics,
    observe_pace,
    reports_faults,
)

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_known: Final = KnownPaces()
"""It outlives the invocation: a busy name then takes one write."""

make_clients("dynamodb")


@logger.inject_lambda_context
@metrics.log_metrics
@reports_faults
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Reserves a slot or refuses; raises InvalidRequest, or an error of the lock store."""
    request = parse_pace(event)
    locks = lock_context(context)
    turn = Turn(request, _known)
    answer = pace_answer(request, turn.reserve(locks), turn.now(locks))
    observe_pace(answer)
    return answer
