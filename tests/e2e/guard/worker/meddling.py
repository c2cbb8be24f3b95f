"""Stands between a guard and the lock service, and spoils what it passes on.

The first part of the lock's name says how.
"""

from __future__ import annotations

import json
import os
from typing import Any

import boto3

Json = dict[str, Any]

_seen: set[str] = set()


class InvalidRequest(Exception):  # noqa: N818 - the name that guards do not repeat
    """Fails a call at once."""


def handler(event: Json, _context: object) -> Json:
    """Acquire or release, spoilt."""
    fault, _, _ = str(event["lock_name"]).partition("/")
    return _FAULTS[fault](event)


def lossy(event: Json, _context: object) -> Json:
    """Acquire for a lock of any name; its first reply is lost."""
    return lost_reply(event)


def refuse(event: Json, _context: object) -> Json:
    """A call for a lock of any name, which fails for good."""
    return broken(event)


def lost_reply(event: Json) -> Json:
    """The first call for each lock is granted, but the caller does not hear of it."""
    answer = _pass_on("ACQUIRE", event)
    if _is_first(event):
        message = "the reply is lost"
        raise ConnectionError(message)
    return answer


def granted_and_failed(event: Json) -> Json:
    """Every call is granted, and fails."""
    _pass_on("ACQUIRE", event)
    message = "granted, but who knows"
    raise InvalidRequest(message)


def released_meanwhile(event: Json) -> Json:
    """The first owner of each lock was released before its repeated call comes."""
    if _is_first(event):
        _pass_on("ACQUIRE", event)
        _pass_on("RELEASE", {name: event[name] for name in ("lock_name", "owner_id")})
    return _pass_on("ACQUIRE", event)


def broken(_event: Json) -> Json:
    """Fails every call."""
    message = "broken"
    raise InvalidRequest(message)


_FAULTS = {
    "LostReply": lost_reply,
    "GrantedAndFailed": granted_and_failed,
    "ReleasedMeanwhile": released_meanwhile,
    "PollNotReleased": broken,
    "KeptAliveNotReleased": broken,
}


def _is_first(event: Json) -> bool:
    first = event["lock_name"] not in _seen
    _seen.add(event["lock_name"])
    return first


def _pass_on(operation: str, request: Json) -> Json:
    client = boto3.client("lambda")
    response = client.invoke(FunctionName=os.environ[operation], Payload=json.dumps(request))
    answer: Json = json.load(response["Payload"])
    return answer
