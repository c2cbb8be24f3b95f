"""Lambda entry point: reserve a slot of a pace. Its caller waits until the slot begins."""

from __future__ import annotations

from typing import Any, Final

from fairlock.store.turns import KnownPaces, Turn
from fairlock.wire.answers import pace_answer
from fairlock.wire.requests import parse_pace
from lambdas.runtime import Invocation, entry_point, lock_context, observe_pace

_known: Final = KnownPaces()
"""It outlives the invocation: a busy name then takes one write."""


@entry_point("dynamodb")
def handler(event: dict[str, Any], context: Invocation) -> dict[str, Any]:
    """Reserves a slot or refuses; raises InvalidRequest, or an error of the lock store."""
    request = parse_pace(event)
    locks = lock_context(context)
    turn = Turn(request, _known)
    answer = pace_answer(request, turn.reserve(locks), turn.now(locks))
    observe_pace(answer)
    return answer
