"""Wrong protocols: each loses one condition, or one change, of the requests that it sends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from fairlock.testing.interpreter import placeholders
from tests.support.faulty_table import WRITES

Request = dict[str, Any]
Mutation = Callable[[Request], Request]
"""Changes an update on its way, also one within a transaction."""


class MutatedTable:
    """Passes requests on to a table, and changes the updates among them.

    Attributes:
        mutated: how many were changed.
    """

    def __init__(self, inner: object, mutate: Mutation) -> None:
        self._inner, self._mutate, self.mutated = inner, mutate, 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self._inner, name)
        if name not in WRITES:
            return attribute
        return lambda **request: attribute(**self._edited(request))

    def _edited(self, request: Request) -> Request:
        if "TransactItems" in request:
            items = [
                {kind: self._edited(write) for kind, write in item.items()}
                for item in request["TransactItems"]
            ]
            return {**request, "TransactItems": items}
        if "UpdateExpression" not in request:
            return request
        edited = self._mutate(request)
        self.mutated += edited != request
        return edited


def _edit(part: str, pattern: str, replacement: str) -> Mutation:
    def mutate(update: Request) -> Request:
        text = re.sub(pattern, replacement, update.get(part, ""))
        if text == update.get(part, ""):
            return update
        edited = {**update, part: text}
        # DynamoDB would refuse placeholders that the edit left unused.
        used = placeholders(edited["UpdateExpression"], edited["ConditionExpression"])
        for given in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            edited[given] = {name: of for name, of in update[given].items() if name in used}
        return edited

    return mutate


def in_condition(pattern: str, replacement: str = "") -> Mutation:
    return _edit("ConditionExpression", pattern, replacement)


def in_change(pattern: str, replacement: str = "") -> Mutation:
    return _edit("UpdateExpression", pattern, replacement)


def _first_token(update: Request) -> Request:
    values = update["ExpressionAttributeValues"]
    if ":seed" not in values:
        return update
    return {**update, "ExpressionAttributeValues": {**values, ":seed": {"N": "0"}}}


MUTANTS: Final[dict[str, Mutation]] = {
    "the limit is compared with <>, and with no one else's": in_condition(
        r"\(#held < :limit AND #limit = :limit\)", "#held <> :limit"
    ),
    "the first write ignores the limit in force": in_condition(r" AND #limit = :limit"),
    "the limit in force is never lowered": in_change(
        r"#limit = :limit", "#limit = if_not_exists(#limit, :limit)"
    ),
    "the limit is compared with <=": in_condition(r"#held < :limit", "#held <= :limit"),
    "a delayed duplicate may acquire again": in_condition(
        r" AND \(attribute_not_exists\(#last_released\) OR #last_released <> :me\)"
        r" AND \(attribute_not_exists\(#last_given_up\) OR #last_given_up <> :me\)"
    ),
    "a holder may acquire again": in_condition(r"^attribute_not_exists\(#mine\) AND "),
    "a takeover ignores a heartbeat in between": in_condition(
        r" AND #over\d+\.#h_revision = :seen\d+"
    ),
    "a release needs no permit": in_condition(
        r"^attribute_exists\(#mine\) AND (?=attribute_not_exists\(#contended)",
        "attribute_exists(#held) AND ",
    ),
    "a release does not count": in_change(r"#held = #held - :one, "),
    "a token counter belongs to an owner": in_change(
        r"#fencing_token = if_not_exists\(#fencing_token, (:\w+)\)",
        r"#fencing_token = if_not_exists(#my_token, \1)",
    ),
    "a heartbeat leaves the revision": in_change(r"#mine\.#h_revision = [^,]+, "),
    "a new lock starts its tokens at one": _first_token,
}
