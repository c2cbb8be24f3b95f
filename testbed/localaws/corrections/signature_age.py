"""A request whose signature is more than 5 minutes old, or young, is refused.

AWS: "the request must reach AWS within 5 minutes of the time stamp in the request" (IAM user guide,
"Elements of an AWS API request signature"). DynamoDB answers `InvalidSignatureException`, status
400, with the Date and the request id that all of its answers have.

Emulator: takes a signature of any age. So a process whose clock is hours off is served, which on
AWS it never is.

This: a request with the header `X-Amz-Date` that differs by more than 5 minutes from the clock of
the emulator is refused. Tests of clocks that are wrong by more leave this correction out.
"""

import json
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any

import ministack.app

Json = dict[str, Any]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]
Application = Callable[[Json, Receive, Send], Awaitable[None]]

_FORMAT = "%Y%m%dT%H%M%SZ"
_LONGEST = timedelta(minutes=5)


def apply() -> None:
    """Stand before the emulator's application."""
    ministack.app.app = _checked(ministack.app.app)


def _checked(application: Application) -> Application:
    async def checked(scope: Json, receive: Receive, send: Send) -> None:
        reason = _objection(scope["headers"]) if scope["type"] == "http" else None
        if reason is None:
            await application(scope, receive, send)
        else:
            await _refuse(send, reason)

    return checked


def _objection(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with the time of the signature; None if nothing is, or if there is none."""
    stamp = next((value.decode() for name, value in headers if name.lower() == b"x-amz-date"), None)
    if stamp is None:
        return None
    try:
        signed = datetime.strptime(stamp, _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return f"Date must be in ISO-8601 'basic format'. Got '{stamp}'."
    now = datetime.now(UTC)
    if signed < now - _LONGEST:
        earliest = (now - _LONGEST).strftime(_FORMAT)
        return f"Signature expired: {stamp} is now earlier than {earliest} (- 5 min.)"
    if signed > now + _LONGEST:
        latest = (now + _LONGEST).strftime(_FORMAT)
        return f"Signature not yet current: {stamp} is still later than {latest} (+ 5 min.)"
    return None


async def _refuse(send: Send, reason: str) -> None:
    kind = "com.amazon.coral.service#InvalidSignatureException"
    body = json.dumps({"__type": kind, "message": reason})
    headers = [
        (b"content-type", b"application/x-amz-json-1.0"),
        (b"date", formatdate(usegmt=True).encode()),
        (b"x-amzn-requestid", str(uuid.uuid4()).encode()),
    ]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
