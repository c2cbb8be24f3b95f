"""The real boto3 client, as the handlers configure it, against a server that misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ClientError

from fairlock.aws.retry import CLIENT_CONFIG, USER_AGENT
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Released
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, store_over
from tests.support.faulty_table import READS, TRANSACTIONS, FaultyTable, client_error, fault
from tests.support.store_bench import Bench

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


# To which host a client's requests go: what a proxy or an allow-list has to let through.


ACCOUNT = "123456789012"


@pytest.mark.parametrize(
    ("mode", "host"),
    [
        (None, f"{ACCOUNT}.ddb.eu-central-1.amazonaws.com"),
        ("disabled", "dynamodb.eu-central-1.amazonaws.com"),
    ],
)
def test_a_client_prefers_the_endpoint_of_its_account(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, host: str
) -> None:
    """AWS SDKs and Tools Reference Guide, "Account-based endpoints"; docs/client.md says so."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    if mode is not None:
        monkeypatch.setenv("AWS_ACCOUNT_ID_ENDPOINT_MODE", mode)
    session = boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", aws_account_id=ACCOUNT
    )
    client = session.client("dynamodb", region_name="eu-central-1")
    hosts: list[str] = []

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        hosts.append(request.url.split("/")[2])
        headers = HTTPHeaders.from_dict({"x-amzn-requestid": "1"})
        body = SimpleNamespace(stream=lambda: [b"{}"])
        return AWSResponse(request.url, 200, headers, body)

    client.meta.events.register("before-send.dynamodb", answer)  # type: ignore[arg-type]  # it answers
    client.list_tables()
    client.close()
    assert hosts == [host]


# The first requests of a client, by several threads: boto3 may make its classes of errors twice.
#
# `client.exceptions` is made when it is first needed, without a lock. So a thread may be raised a
# class that another thread's `client.exceptions` does not have.


class Twice(ClientError):  # noqa: N818 - as boto3 names its own
    """An error of a class that no one knows by name."""


@dataclass
class OtherClasses:
    """A client that raises each error as another class, with the same code and content."""

    inner: MemoryTable = field(default_factory=MemoryTable)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        if not callable(attribute) or name == "exceptions":
            return attribute

        def call(**request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
            try:
                return attribute(**request)
            except ClientError as error:
                raise Twice(error.response, error.operation_name) from None

        return call


@pytest.mark.parametrize("client", [MemoryTable(), OtherClasses()], ids=["usual", "twice"])
def test_a_false_condition_is_an_answer_whatever_the_class_of_its_error(client: Any) -> None:  # noqa: ANN401 - a DynamoDB client
    bench = Bench(client, FakeClock())
    bench.grant("anna")
    bench.refuse("ben")
    ticket = bench.queue("carl").entered_at_ms
    assert isinstance(bench.release("anna"), Released)
    assert isinstance(bench.release("carl", ticket=ticket), Released)


@pytest.mark.parametrize(
    "code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]
)
def test_a_transaction_that_is_cancelled_in_passing_is_sent_again(bench: Bench, code: str) -> None:
    bench.grant("anna")
    cancelled = client_error("TransactionCanceledException")
    cancelled.response["CancellationReasons"] = [{"Code": "None"}, {"Code": code}]
    client = FaultyTable(bench.client, fault(cancelled, 1, of=TRANSACTIONS))
    bench.queue("ben", over=client)
    assert client.calls.count("transact_write_items") == 2


def test_every_read_is_strongly_consistent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    consistent: dict[str, bool] = {}

    def noted(name: str) -> Callable[..., Any]:
        send = getattr(bench.client, name)

        def read(**request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
            consistent[name] = request.get("ConsistentRead", False)
            return send(**request)

        return read

    for name in READS:
        monkeypatch.setattr(bench.client, name, noted(name))
    bench.ask("anna")
    store = bench.store()
    assert (store.read_state(LOCK).held, len(list(store.list_locks()))) == (1, 1)
    store.read_lock(LOCK)
    assert consistent == dict.fromkeys(READS, True)


# A request that was sent more than once may have been written by the first of them.


THROTTLED = client_error("ThrottlingException")
"""As botocore gives up: the reply to its first sending was lost, its repeats were throttled."""


@pytest.mark.parametrize("others_waited", [False, True])
def test_if_others_have_released_meanwhile_no_one_can_tell(
    bench: Bench, *, others_waited: bool
) -> None:
    """Behind a waiter that has gone the departure is another write: it clears the flag as well."""
    bench.ask("anna")
    if others_waited:
        bench.wait("ben", execution_arn=None)
        bench.client.items.pop(next(key for key in bench.client.items if "WAITER" in key[1]))
    departure = 2 if others_waited else 1
    throttled = fault(THROTTLED, departure, when="after", then=bench.pass_through)
    with pytest.raises(LockStoreUnavailable):
        bench.release("anna", over=throttled)
