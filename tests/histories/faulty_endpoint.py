"""A DynamoDB endpoint on loopback that fails on purpose: for clients, a bad network and a bad day.

    client ──HTTP──▶ faulty endpoint ──▶ a table in memory

Each fault happens to one request, chosen by a seeded source: the same seed gives the same faults in
the order in which requests arrive. A request is repeated by the client only, never by the network:
TCP delivers once, and who repeats a POST must know that its answer was lost. But what the client
has given up may be delivered up to a minute later, after its repeats and all that followed them.
"""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from botocore.exceptions import ClientError

_LONGEST_DELAY_SECONDS: Final = 0.05
"""Much shorter than the clients' read timeout: no request arrives after its caller has given up."""
_GIVEN_UP_SECONDS: Final = 1.6
"""As long as a client waits for an answer; no repeat comes before."""
_WRITES: Final = frozenset({"UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems"})
_LATEST_SECONDS: Final = 60.0
"""For which a write is held back at most, after it was given up."""
_RESET: Final = struct.pack("ii", 1, 0)
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Fault(Enum):
    """What happens to a request, or to its reply."""

    LOST_REQUEST = "the connection is reset before the request is passed on"
    LOST_REPLY = "the connection is closed instead of a reply"
    RESET = "the connection is reset in the middle of the reply"
    DELAY = "the request is passed on late"
    THROTTLE = "refused, because there are too many"
    ERROR = "passed on, and answered as an internal error"
    HELD_BACK = "given up by the client, and passed on afterwards"


@dataclass
class Faults:
    """Which request meets which fault.

    Attributes:
        share: of all requests, from 0 to 1, that meet a fault.
        kinds: of faults.
        met: how often each fault has happened.
        requests: how many requests came in.
    """

    share: float
    seed: int
    kinds: tuple[Fault, ...] = tuple(Fault)
    met: Counter[Fault] = field(default_factory=Counter)
    requests: int = 0
    _held_back: list[tuple[float, int, str, bytes]] = field(default_factory=list)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - no secret

    def next(self) -> tuple[Fault | None, float]:
        """What happens to the next request; and the seconds by which it is late, if that is it."""
        with self._mutex:
            self.requests += 1
            late = self._random.random() * _LONGEST_DELAY_SECONDS
            fault = self._random.choice(self.kinds)
            if self._random.random() >= self.share:
                return None, 0.0
            self.met[fault] += 1
            return fault, late

    def hold_back(self, operation: str, body: bytes) -> None:
        """Keeps a write until its client has given it up; mostly for seconds, at most a minute."""
        with self._mutex:
            late = self._random.random() ** 2 * _LATEST_SECONDS
            due = time.monotonic() + _GIVEN_UP_SECONDS + late
            if operation in _WRITES:
                heappush(self._held_back, (due, self.requests, operation, body))

    def due(self) -> Iterator[tuple[str, bytes]]:
        """The writes that were held back for long enough."""
        while True:
            with self._mutex:
                if not self._held_back or self._held_back[0][0] > time.monotonic():
                    return
                _, _, operation, body = heappop(self._held_back)
            yield operation, body


@contextmanager
def faulty_endpoint(table: Any, faults: Faults) -> Iterator[str]:  # noqa: ANN401 - a MemoryTable or what wraps one
    """Serves a table in memory with these faults, one request at a time; yields the URL."""
    more = {"table": table, "faults": faults, "mutex": threading.Lock()}
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), more))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1_024  # Hundreds of clients may connect at the same moment.

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has reset its connection is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # a socket


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    table: Any
    faults: Faults
    mutex: threading.Lock
    wbufsize = -1  # One packet for a reply.

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        for request in self.faults.due():
            self._do(*request)
        fault, late = self.faults.next()
        if fault is Fault.HELD_BACK:
            self.faults.hold_back(operation, body)
            time.sleep(_GIVEN_UP_SECONDS)
        if fault in (Fault.HELD_BACK, Fault.LOST_REQUEST):
            self._end_connection(reset=True)
            return
        if fault is Fault.THROTTLE:
            self._answer(*_error("ProvisionedThroughputExceededException", 400))
            return
        time.sleep(late if fault is Fault.DELAY else 0)
        status, reply = self._do(operation, body)
        if fault is Fault.LOST_REPLY:
            self._end_connection()
        elif fault is Fault.RESET:
            self._answer(status, reply, bytes_sent=len(reply) // 2)
            self._end_connection(reset=True)
        elif fault is Fault.ERROR:
            self._answer(*_error("InternalServerError", 500))
        else:
            self._answer(status, reply)

    def _do(self, operation: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        method = getattr(self.table, _WORD_START.sub("_", operation).lower())
        try:
            with self.mutex:
                answer = method(**json.loads(body))
        except ClientError as error:
            # With the item, or the reasons, that came with it.
            response: dict[str, Any] = dict(error.response)
            return _error(response.pop("Error")["Code"], 400, **response)
        return 200, json.dumps(answer).encode()

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def _answer(self, status: int, body: bytes, *, bytes_sent: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:bytes_sent])
        self.wfile.flush()

    def _end_connection(self, *, reset: bool = False) -> None:
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.connection.close()
        self.close_connection = True


def _error(code: str, status: int, **more: Any) -> tuple[int, bytes]:  # noqa: ANN401 - of the response
    """An error as DynamoDB describes it."""
    name = f"com.amazonaws.dynamodb.v20120810#{code}"
    return status, json.dumps({"__type": name, "message": "on purpose", **more}).encode()
