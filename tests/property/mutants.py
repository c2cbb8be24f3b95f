"""Wrong protocols: each changes the requests on their way, in one of the rules of the design.

Those of the queue are few, because they fall within a second. Mutants that need a rare interleaving
are in `tests/model`, which searches all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fairlock.testing.interpreter import placeholders
from tests.property.bench import Mutation

Request = dict[str, Any]


def _in_condition(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "ConditionExpression", pattern, replacement))


def _in_change(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "UpdateExpression", pattern, replacement))


def _in_updates(edit: Callable[[Request], Request]) -> Mutation:
    """Edits updates, also those within transactions."""

    def mutate(name: str, request: Request) -> Request:
        if name == "update_item":
            return edit(request)
        if name == "transact_write_items":
            if "Update" not in request["TransactItems"][0]:
                return request
            state, other = request["TransactItems"]
            return {**request, "TransactItems": [{"Update": edit(state["Update"])}, other]}
        return request

    return mutate


def _edited(update: Request, expression: str, pattern: str, replacement: str) -> Request:
    text = re.sub(pattern, replacement, update[expression])
    if text == update[expression]:
        return update
    edited = {**update, expression: text}
    # DynamoDB would refuse placeholders that the edit left unused.
    used = placeholders(edited["UpdateExpression"], edited["ConditionExpression"])
    parts = ("ExpressionAttributeNames", "ExpressionAttributeValues")
    return edited | {
        part: {name: value for name, value in update[part].items() if name in used}
        for part in parts
    }


def _first_token(update: Request) -> Request:
    values = update["ExpressionAttributeValues"]
    if ":seed" not in values:
        return update
    return {**update, "ExpressionAttributeValues": {**values, ":seed": {"N": "0"}}}


def _leave_waiter(name: str, request: Request) -> Request:
    if name != "transact_write_items" or "Update" not in request["TransactItems"][0]:
        return request
    if "Delete" not in request["TransactItems"][1]:
        return request
    return {**request, "TransactItems": request["TransactItems"][:1]}


MUTANTS: dict[str, Mutation] = {
    "the limit is compared with <>, and with no one else's": _in_condition(
        r"\(#held < :limit AND #limit = :limit\)", "#held <> :limit"
    ),
    "the first write ignores the limit in force": _in_condition(r" AND #limit = :limit"),
    "the limit in force is never lowered": _in_change(
        r"#limit = :limit", "#limit = if_not_exists(#limit, :limit)"
    ),
    "the limit is compared with <=": _in_condition(r"#held < :limit", "#held <= :limit"),
    "a delayed duplicate may acquire again": _in_condition(
        r" AND \(attribute_not_exists\(#last_released\) OR #last_released <> :me\)"
        r" AND \(attribute_not_exists\(#last_given_up\) OR #last_given_up <> :me\)"
    ),
    "a holder may acquire again": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
    "a takeover ignores a heartbeat in between": _in_condition(
        r" AND #over\d+\.#h_revision = :seen\d+"
    ),
    "a release needs no permit": _in_condition(
        r"^attribute_exists\(#mine\) AND (?=attribute_not_exists\(#contended)",
        "attribute_exists(#held) AND ",
    ),
    "a release does not count": _in_change(r"#held = #held - :one, "),
    "a token counter belongs to an owner": _in_change(
        r"#fencing_token = if_not_exists\(#fencing_token, (:\w+)\)",
        r"#fencing_token = if_not_exists(#my_token, \1)",
    ),
    "a heartbeat leaves the revision": _in_change(r"#mine\.#h_revision = [^,]+, "),
    "a new lock starts its tokens at one": _in_updates(_first_token),
}
QUEUE_MUTANTS: dict[str, Mutation] = {
    "joining does not flag the lock": _in_change(r"#contended = :yes, "),
    "an acquire overtakes the queue": _in_condition(r" AND attribute_not_exists\(#contended\)"),
    "a hand-off leaves the waiter in the queue": _leave_waiter,
    "a holder may join the queue": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
}
