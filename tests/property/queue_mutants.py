"""Wrong queues: each changes the requests on their way, in one of the rules of the design.

These four fall within a second. Those that need a rare interleaving are for `tests/model`, which
searches all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.property.mutants import Request, edited

QueueMutation = Callable[[str, Request], Request]


def _in_condition(pattern: str, replacement: str = "") -> QueueMutation:
    return _everywhere(lambda write: edited(write, "ConditionExpression", pattern, replacement))


def _in_change(pattern: str, replacement: str = "") -> QueueMutation:
    return _everywhere(lambda write: edited(write, "UpdateExpression", pattern, replacement))


def _everywhere(edit: Callable[[Request], Request]) -> QueueMutation:
    """Edits updates, also those within transactions."""

    def mutate(name: str, request: Request) -> Request:
        if name == "update_item":
            return edit(request)
        if name == "transact_write_items":
            state, waiter = request["TransactItems"]
            return {"TransactItems": [{"Update": edit(state["Update"])}, waiter]}
        return request

    return mutate


def _hand_over_keeps_the_waiter(name: str, request: Request) -> Request:
    if name != "transact_write_items" or "Delete" not in request["TransactItems"][1]:
        return request
    return {"TransactItems": request["TransactItems"][:1]}


QUEUE_MUTANTS: dict[str, QueueMutation] = {
    "joining does not flag the lock": _in_change(r"#contended = :yes, "),
    "a claim overtakes the queue": _in_condition(
        r" AND \(attribute_not_exists\(#contended\) OR #contended = :no\)"
    ),
    "a hand-off leaves the waiter in the queue": _hand_over_keeps_the_waiter,
    "a holder may join the queue": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
}
