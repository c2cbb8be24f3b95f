"""Stands between a guard and the lock service, and spoils what it passes on."""

from __future__ import annotations

import json
import os
from typing import Any

Json = dict[str, Any]

_seen: set[str] = set()


class InvalidRequest(Exception):  # noqa: N818 - the name that guards do not repeat
    """Fails a call at once."""


class LockLost(Exception):  # noqa: N818 - the service's
    """What a waiter in the queue hears whose acquisition was released."""


def lost_reply(event: Json, _context: object) -> Json:
    """The first call of each owner is granted, but the caller does not hear of it."""
    answer = _pass_on("ACQUIRE", event)
    if _is_first(event):
        message = "the reply is lost"
        raise ConnectionError(message)
    return answer


def granted_and_failed(event: Json, _context: object) -> Json:
    """Every call is granted, and fails."""
    _pass_on("ACQUIRE", event)
    message = "granted, but who knows"
    raise InvalidRequest(message)


def released_meanwhile(event: Json, _context: object) -> Json:
    """The first owner of each lock was released before its repeated call comes."""
    if event["lock_name"] not in _seen:
        _seen.add(event["lock_name"])
        _pass_on("ACQUIRE", event)
        _pass_on("RELEASE", {name: event[name] for name in ("lock_name", "owner_id")})
    return _pass_on("ACQUIRE", event)


def never_held(_event: Json, _context: object) -> Json:
    """Every owner was released before its call comes."""
    message = "released before"
    raise LockLost(message)


def broken(_event: Json, _context: object) -> Json:
    """Fails every call."""
    message = "broken"
    raise InvalidRequest(message)


def _is_first(event: Json) -> bool:
    first = event["owner_id"] not in _seen
    _seen.add(event["owner_id"])
    return first


def _pass_on(operation: str, request: Json) -> Json:
    import boto3  # noqa: PLC0415 - the broken one needs none

    client = boto3.client("lambda")
    response = client.invoke(FunctionName=os.environ[operation], Payload=json.dumps(request))
    answer: Json = json.load(response["Payload"])
    return answer
