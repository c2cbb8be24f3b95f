"""Requests that a web page can cause are refused, and no answer allows another origin to read it.

AWS: a request needs a signature (Signature Version 4), which a web page cannot make for the
account of the developer who looks at the page.

Emulator: takes requests without any signature, and answers `Access-Control-Allow-Origin: *`. While
it runs, every page in the developer's browser can deploy a function, and so run code on the
developer's machine: by a request from the page itself, or through a name of the page's own server
that suddenly resolves to 127.0.0.1 (DNS rebinding).

This: a request is refused with status 403, and a WebSocket is not opened,

* if it has the header `Origin`, which browsers add to requests between origins, or
  `Sec-Fetch-Site`, which they add to all others too, such as an image's. No SDK and no CLI sends
  either;
* if its `Host` is not 127.0.0.1, [::1], localhost or a name below localhost.

`Access-Control-*` leaves all answers.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import ministack.app

Json = dict[str, Any]
Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]
Application = Callable[[Json, Receive, Send], Awaitable[None]]

_BROWSERS_SEND = (b"origin", b"sec-fetch-site")
_LOOPBACK = re.compile(
    rb"(?:127\.0\.0\.1|\[::1\]|(?:[a-z0-9_-]+\.)*localhost)(?::\d+)?", re.IGNORECASE
)


def apply() -> None:
    """Stand before the emulator's application, whatever the path, service or protocol."""
    ministack.app.app = _guarded(ministack.app.app)


def _guarded(application: Application) -> Application:
    async def guarded(scope: Json, receive: Receive, send: Send) -> None:
        reason = None if scope["type"] == "lifespan" else _objection(scope["headers"])
        if reason is None:
            await application(scope, receive, _without_permissions(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _refuse(send, reason)

    return guarded


def _objection(headers: Headers) -> str | None:
    """Why the request may come from a web page; None if it cannot."""
    found = [(name.lower(), value) for name, value in headers]
    for name in _BROWSERS_SEND:
        if any(given == name for given, _ in found):
            return f"a request with the header {name.decode()} comes from a web page"
    hosts = [value for name, value in found if name == b"host"]
    if not hosts or not all(_LOOPBACK.fullmatch(host) for host in hosts):
        return "the header host must name the loopback interface"
    return None


async def _refuse(send: Send, reason: str) -> None:
    body = json.dumps({"__type": "AccessDeniedException", "message": f"localaws: {reason}"})
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _without_permissions(send: Send) -> Send:
    """Takes what would let a page read the answer out of it."""

    async def filtered(message: Json) -> None:
        if "headers" in message:
            message = {**message, "headers": list(_readable_by_no_page(message["headers"]))}
        await send(message)

    return filtered


def _readable_by_no_page(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if not name.lower().startswith(b"access-control-"):
            yield name, value
