"""Only who knows the instance's secret is served, and no answer allows another origin to read it.

AWS: a request needs a signature (Signature Version 4), which a web page cannot make for the
account of the developer who looks at the page.

Emulator: takes requests without any signature, and answers `Access-Control-Allow-Origin: *`. While
it runs, every page in the developer's browser can deploy a function, and so run code on the
developer's machine: by a request from the page itself, or through a name of the page's own server
that suddenly resolves to 127.0.0.1 (DNS rebinding).

This: a request is refused with status 403, and a WebSocket is not opened,

* if it has no header `Authorization: AWS4-…` whose access key is the secret of this instance, which
  is another at each start, or one that this instance has issued since (IAM, STS). Every SDK, the
  CLI and the CDK send the header with each request. A page cannot add it to an image or a form,
  and would need permission (CORS) to add it to a script's request, which it never gets;
* if it has a header that browsers send and no SDK does: `Origin`, `Sec-Fetch-Site`, `Referer`,
  `Cookie`;
* if its `Host` is not 127.0.0.1, [::1], localhost or a name below localhost.

`Access-Control-*` leaves all answers. Functions get the secret as their access key, in place of the
account's number.
"""

import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import ministack.app
from ministack.core import lambda_runtime
from ministack.services import iam, lambda_svc, sts

Json = dict[str, Any]
Headers = Iterable[tuple[bytes, bytes]]
Receive = Callable[[], Awaitable[Json]]
Send = Callable[[Json], Awaitable[None]]
Application = Callable[[Json, Receive, Send], Awaitable[None]]

_BROWSERS_SEND = (b"origin", b"sec-fetch-site", b"referer", b"cookie")
_CREDENTIAL = re.compile(rb"AWS4-[A-Z0-9-]+ +Credential=([^/, ]+)/")
_LOOPBACK = re.compile(
    rb"(?:127\.0\.0\.1|\[::1\]|(?:[a-z0-9_-]+\.)*localhost)(?::\d+)?", re.IGNORECASE
)


def apply() -> None:
    """Stand before the emulator's application, whatever the path, service or protocol."""
    ministack.app.app = _guarded(ministack.app.app)
    for module in (lambda_runtime, lambda_svc):
        module.execution_credentials = _with_secret(module.execution_credentials)


def _with_secret(make: Callable[[Json], dict[str, str]]) -> Callable[[Json], dict[str, str]]:
    """The credentials of a function; without permissions to check they are the instance's own."""

    def credentials(config: Json) -> dict[str, str]:
        made = make(config)
        return made if ministack.app.AUTH else {**made, "AWS_ACCESS_KEY_ID": _secret()}

    return credentials


def _secret() -> str:
    return os.environ["AWS_ACCESS_KEY_ID"]


def _is_known(access_key: str) -> bool:
    issued = access_key in sts._sessions or access_key in iam._access_keys
    return issued or secrets.compare_digest(access_key.encode(), _secret().encode())


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
    signed = [_CREDENTIAL.match(value) for name, value in found if name == b"authorization"]
    if len(signed) != 1 or signed[0] is None or not _is_known(signed[0][1].decode("latin-1")):
        return "the access key is not the secret that this instance has printed at its start"
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
