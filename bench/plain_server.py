"""A server that takes equally long for each write, however long its expressions are.

It evaluates nothing: each write succeeds, and what is asked for comes back. So it can only serve
one acquire and one release after the other. An emulator in Python takes longer for a longer
expression, more than a client does; against this server only the client makes a difference.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

ANSWER_MS: Final = 2
"""DynamoDB answers within single-digit milliseconds; this is at their lower end."""
_HEAD_ENDS: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


@contextmanager
def plain_server() -> Iterator[str]:
    """Runs it in a process of its own; yields its URL."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs,), daemon=True
    )
    process.start()
    try:
        if not ours.poll(30):
            raise TimeoutError("the plain server did not start")
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join(10)


def _serve(port: Connection) -> None:
    asyncio.run(_serve_forever(port))


async def _serve_forever(port: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Connection(asyncio.Protocol):
    """One connection of a client, one request at a time."""

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - a transport that writes
        self._transport, self._received = transport, b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, ends, body = self._received.partition(_HEAD_ENDS)
        if not ends or len(body) < _length(head):
            return
        self._received = b""
        answer = json.dumps(_answer(json.loads(body))).encode()
        asyncio.get_running_loop().call_later(
            ANSWER_MS / 1000,
            self._transport.write,
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer),
        )


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line[len(_LENGTH) :]) for line in lines if line.startswith(_LENGTH)), 0)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """What an acquire that was granted is answered, if that is asked for."""
    if request.get("ReturnValues") != "UPDATED_OLD":
        return {}
    values = request["ExpressionAttributeValues"]
    return {
        "Attributes": {
            "fencing_token": values[":seed"],
            "limit": {"N": "1"},
            "held": {"N": "0"},
            "expiry_time": values[":expiry_time"],
        }
    }
