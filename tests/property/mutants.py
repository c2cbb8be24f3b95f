"""Wrong protocols: each changes the requests on their way, in one of the rules of the design."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]
_PLACEHOLDER = re.compile(r"[#:]\w+")


def _in_condition(pattern: str, replacement: str) -> Callable[[Request], Request]:
    return lambda request: edited(request, "ConditionExpression", pattern, replacement)


def _in_change(pattern: str, replacement: str) -> Callable[[Request], Request]:
    return lambda request: edited(request, "UpdateExpression", pattern, replacement)


def edited(request: Request, expression: str, pattern: str, replacement: str) -> Request:
    edited = re.sub(pattern, replacement, request[expression])
    return request if edited == request[expression] else _pruned({**request, expression: edited})


def _pruned(request: Request) -> Request:
    """Without the placeholders that the edit left unused, which DynamoDB would refuse."""
    text = f"{request['UpdateExpression']} {request['ConditionExpression']}"
    used = set(_PLACEHOLDER.findall(text))
    placeholders = ("ExpressionAttributeNames", "ExpressionAttributeValues")
    return request | {
        part: {name: value for name, value in request[part].items() if name in used}
        for part in placeholders
    }


def _first_token(request: Request) -> Request:
    values = request["ExpressionAttributeValues"]
    if ":seed" not in values:
        return request
    return {**request, "ExpressionAttributeValues": {**values, ":seed": {"N": "0"}}}


MUTANTS: dict[str, Callable[[Request], Request]] = {
    "the limit is compared with <>": _in_condition(r"#held < :limit", "#held <> :limit"),
    "the limit is compared with <=": _in_condition(r"#held < :limit", "#held <= :limit"),
    "a delayed duplicate may acquire again": _in_condition(
        r" AND \(attribute_not_exists\(#last_released\) OR #last_released <> :me\)", ""
    ),
    "a holder may claim again": _in_condition(r"^attribute_not_exists\(#mine\) AND ", ""),
    "a takeover ignores a heartbeat in between": _in_condition(
        r" AND #expired\d+\.#revision = :seen\d+", ""
    ),
    "a release needs no permit": _in_condition(
        r"^attribute_exists\(#mine\) AND (?=\(attribute_not_exists\(#contended)",
        "attribute_exists(#held) AND ",
    ),
    "a release does not count": _in_change(r"#held = #held - :one, ", ""),
    "a token counter is kept per owner": _in_change(
        r"#fencing_token = if_not_exists\(#fencing_token, (:\w+)\)",
        r"#fencing_token = if_not_exists(#my_token, \1)",
    ),
    "a heartbeat leaves the revision": _in_change(r"#mine\.#revision = [^,]+, ", ""),
    "a new lock starts its tokens at one": _first_token,
}
