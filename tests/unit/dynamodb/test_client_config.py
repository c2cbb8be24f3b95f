"""The real boto3 client, as the handlers configure it, against a server that misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.config import Config

from fairlock.aws.retry import CLIENT_CONFIG, USER_AGENT
from fairlock.errors import LockStoreUnavailable
from tests.support import FakeClock, acquire, store_over

Reaction = Callable[["Handler"], None]


@dataclass
class Server:
    """Reacts to each request in the same way and counts them."""

    react: Reaction
    requests: int = 0
    user_agents: set[str] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    misbehaviour: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.misbehaviour.lock:
            self.misbehaviour.requests += 1
            self.misbehaviour.user_agents.add(self.headers["User-Agent"])
        self.misbehaviour.react(self)

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def error(status: int, code: str) -> Reaction:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "no"})
    return lambda handler: handler.answer(status, body)


def proxy_page(handler: Handler) -> None:
    handler.answer(502, "<html>Bad Gateway</html>")


def close(handler: Handler) -> None:
    handler.close_connection = True


def hang(handler: Handler) -> None:
    handler.misbehaviour.over.wait(60)


@contextmanager
def serving(react: Reaction) -> Iterator[tuple[Server, str]]:
    misbehaviour = Server(react)
    kind = type("BoundHandler", (Handler,), {"misbehaviour": misbehaviour})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield misbehaviour, f"http://127.0.0.1:{server.server_port}"
        finally:
            misbehaviour.over.set()
            server.shutdown()
            thread.join(60)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's pauses between tries take no time."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    "react",
    [
        error(400, "ThrottlingException"),
        error(400, "ProvisionedThroughputExceededException"),
        error(500, "InternalServerError"),
        error(503, "ServiceUnavailable"),
        proxy_page,
        close,
        hang,
    ],
    ids=["throttle", "throughput", "500", "503", "a proxy's page", "closed", "no reply"],
)
def test_what_outlasts_three_tries_is_lock_store_unavailable(
    clock: FakeClock, react: Reaction
) -> None:
    with serving(react) as (server, url):
        client = boto3.client(
            "dynamodb",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=CLIENT_CONFIG.merge(Config(read_timeout=0.1)),
        )
        with pytest.raises(LockStoreUnavailable):
            store_over(client, clock).acquire(acquire("anna"))
        assert server.requests >= 3
        assert all(agent.startswith(USER_AGENT) for agent in server.user_agents)
        client.close()


def test_all_tries_with_all_their_timeouts_fit_into_the_handlers_ten_seconds() -> None:
    config: Any = CLIENT_CONFIG  # its stubs leave out what a Config is made of
    tries = config.retries["total_max_attempts"]
    longest_pauses = sum(2**n for n in range(tries - 1))
    assert tries * config.connect_timeout + longest_pauses < 10
    assert tries * config.read_timeout + longest_pauses < 10
