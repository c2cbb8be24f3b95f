"""The real boto3 client, as the handlers configure it, when what it sends is not answered well."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import (
    ConnectionClosedError,
    HTTPClientError,
    ReadTimeoutError,
)

from fairlock.aws.retry import CLIENT_CONFIG, USER_AGENT
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol.outcomes import Released
from fairlock.store.administration import empty_queue
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, acquire, store_over
from tests.support.faulty_table import (
    READS,
    TRANSACTIONS,
    FaultyTable,
    client_error,
    fault,
    refusal,
    show,
)
from tests.support.store_bench import Bench
from tests.unit.client.doubles import Table

ACCOUNT = "123456789012"
Reaction = Callable[[str], AWSResponse]
"""What becomes of each sending of a request to a URL."""


def answers(status: int, body: str) -> Reaction:
    content = SimpleNamespace(stream=lambda: [body.encode()])
    headers = HTTPHeaders.from_dict({"x-amzn-requestid": "1"})
    return lambda url: AWSResponse(url, status, headers, content)


def error(status: int, code: str) -> Reaction:
    kind = f"com.amazonaws.dynamodb.v20120810#{code}"
    return answers(status, json.dumps({"__type": kind, "message": "no"}))


def fails(kind: type[HTTPClientError]) -> Reaction:
    def react(url: str) -> AWSResponse:
        raise kind(endpoint_url=url)

    return react


def client_of_the_account(**settings: Any) -> Any:  # noqa: ANN401 - of a client
    session = boto3.Session("test", "test", region_name="eu-central-1", aws_account_id=ACCOUNT)
    return session.client("dynamodb", **settings)


def sent_by(client: Any, react: Reaction) -> list[AWSPreparedRequest]:  # noqa: ANN401 - a DynamoDB client
    """What the client sends from now on, instead of its way over the network."""
    sent: list[AWSPreparedRequest] = []

    def send(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request)
        return react(request.url)

    client.meta.events.register("before-send.dynamodb", send)
    return sent


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
        answers(502, "<html>Bad Gateway</html>"),
        fails(ConnectionClosedError),
        fails(ReadTimeoutError),
    ],
    ids=["throttle", "throughput", "500", "503", "a proxy's page", "closed", "no reply"],
)
def test_what_outlasts_3_tries_is_lock_store_unavailable(
    clock: ManualClock, react: Reaction
) -> None:
    client = client_of_the_account(config=CLIENT_CONFIG)
    sent = sent_by(client, react)
    with pytest.raises(LockStoreUnavailable):
        store_over(client, clock).acquire(acquire("anna"))
    assert len(sent) >= 3
    agents: set[Any] = {each.headers["User-Agent"] for each in sent}
    assert all(agent.startswith(USER_AGENT.encode()) for agent in agents)
    client.close()


def test_all_tries_with_all_their_timeouts_fit_into_the_handlers_ten_seconds() -> None:
    config: Any = CLIENT_CONFIG  # its stubs leave out what a Config is made of
    tries = config.retries["total_max_attempts"]
    longest_pauses = sum(2**n for n in range(tries - 1))
    assert tries * config.connect_timeout + longest_pauses < 10
    assert tries * config.read_timeout + longest_pauses < 10


# To which host a client's requests go: what a proxy or an allow-list has to let through.


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
    client = client_of_the_account()
    sent = sent_by(client, answers(200, "{}"))
    client.list_tables()
    client.close()
    assert [request.url.split("/")[2] for request in sent] == [host]


# The first requests of a client, by several threads: boto3 may make its classes of errors twice.
#
# `client.exceptions` is made when it is first needed, without a lock. So a thread may be raised a
# class that another thread's `client.exceptions` does not have.


OTHERS: Any = SimpleNamespace(
    ConditionalCheckFailedException=KeyError, TransactionCanceledException=KeyError
)
"""Classes of errors, of which the client raises none."""


@pytest.mark.parametrize(
    "client", [MemoryTable(), MemoryTable(exceptions=OTHERS)], ids=["usual", "twice"]
)
def test_a_false_condition_is_an_answer_whatever_the_class_of_its_error(client: Any) -> None:  # noqa: ANN401 - a DynamoDB client
    bench = Bench(client, ManualClock())
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


def test_a_removal_of_many_that_is_cancelled_as_invalid_is_a_defect(bench: Bench) -> None:
    bench.grant("anna")
    for name in ("ben", "carl"):
        bench.queue(name)
    invalid = refusal("TransactionCanceledException")
    invalid.response["CancellationReasons"] = [{"Code": "ValidationError"}, {"Code": "None"}]
    failing = bench.store(fault(invalid, of=TRANSACTIONS))
    with pytest.raises(LockStoreMisconfigured, match="TransactionCanceledException"):
        empty_queue(failing.context, LOCK)
    assert bench.waiters() == ["ben", "carl"]


def test_every_read_is_strongly_consistent(clock: ManualClock) -> None:
    consistent: dict[str, bool] = {}
    table = Table(clock)

    def note(name: str, request: dict[str, Any]) -> None:
        consistent[name] = request.get("ConsistentRead", False)

    table.will(show(note, of=READS))
    store = store_over(table, clock)
    store.acquire(acquire("anna"))
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
