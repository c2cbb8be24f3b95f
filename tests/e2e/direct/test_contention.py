"""What reaches the table: many callers at once, over HTTP, and the requests of one."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from fairlock.protocol.schema import lock_key
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.direct.functions import CALLERS, Functions, Json, unique

Result = TypeVar("Result")
LONGEST_ROUND_SECONDS = 60
ROUNDS = 10
SEMAPHORE_ROUNDS = 3


@pytest.fixture(scope="module")
def functions(deployment: Deployment) -> Functions:
    return Functions(deployment)


@dataclass(frozen=True)
class Crowd:
    """Threads that do something at the same moment."""

    pool: ThreadPoolExecutor
    barrier: threading.Barrier

    def meet(self) -> None:
        """Wait until all are here."""
        self.barrier.wait(timeout=LONGEST_ROUND_SECONDS)

    def at_once(self, act: Callable[[int], Result]) -> list[Result]:
        def start_together(number: int) -> Result:
            self.meet()
            return act(number)

        return list(self.pool.map(start_together, range(CALLERS)))


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    with ThreadPoolExecutor(CALLERS) as pool:
        yield Crowd(pool, threading.Barrier(CALLERS))


@pytest.fixture(scope="module")
def warm(functions: Functions, crowd: Crowd) -> None:
    """Execution environments for all callers, made a few at a time.

    All cold starts at once would take two cores longer than the functions' timeout.
    """
    for callers in range(3, CALLERS + 1, 3):
        event = {"lock_name": unique("warm-up"), "limit": 100}
        crowd.at_once(
            lambda number: number < callers and functions.invoke("acquire", event)  # noqa: B023 - done within the round
        )


def acquire_until_answered(functions: Functions, event: Mapping[str, object]) -> Json:
    """A call that timed out because the bed is too busy is repeated, as the contract allows."""
    while True:
        invoked = functions.invoke("acquire", event)
        if invoked.error != "Sandbox.Timedout":
            assert invoked.error is None, invoked.payload
            return invoked.payload


def one_round(functions: Functions, crowd: Crowd, lock_name: str, limit: int) -> list[Json]:
    """All acquire at once; the winners release. Returns the winners' grants."""
    owners = [unique("owner") for _ in range(CALLERS)]
    answers = crowd.at_once(
        lambda number: acquire_until_answered(
            functions, {"lock_name": lock_name, "owner_id": owners[number], "limit": limit}
        )
    )
    grants = [answer for answer in answers if answer["acquired"]]
    refusals = [answer["reason"] for answer in answers if not answer["acquired"]]
    assert set(refusals) <= {"HELD"}
    for grant in grants:
        named = {"lock_name": lock_name, "owner_id": grant["owner_id"]}
        assert functions.ask("release", named)["released"]
    return grants


@pytest.mark.usefixtures("warm")
def test_of_all_who_acquire_at_once_one_wins_each_round(functions: Functions, crowd: Crowd) -> None:
    lock_name = unique("one-winner")
    rounds = [one_round(functions, crowd, lock_name, limit=1) for _ in range(ROUNDS)]
    assert [len(grants) for grants in rounds] == [1] * ROUNDS
    tokens = [grant["fencing_token"] for (grant,) in rounds]
    assert tokens == [tokens[0] + number for number in range(ROUNDS)]


@pytest.mark.usefixtures("warm")
def test_of_all_who_acquire_at_once_five_win_if_the_limit_is_five(
    functions: Functions, crowd: Crowd
) -> None:
    lock_name = unique("five-winners")
    rounds = [one_round(functions, crowd, lock_name, limit=5) for _ in range(SEMAPHORE_ROUNDS)]
    assert [len(grants) for grants in rounds] == [5] * SEMAPHORE_ROUNDS
    tokens = [sorted(grant["fencing_token"] for grant in grants) for grants in rounds]
    everything = [token for of_round in tokens for token in of_round]
    assert everything == list(range(everything[0], everything[0] + 5 * SEMAPHORE_ROUNDS))


def test_without_the_condition_of_the_write_several_win(functions: Functions, crowd: Crowd) -> None:
    """The negative control: read whether the lock is free, then take it."""
    lock_name = unique("read-then-take")

    def read_then_take(_: int) -> bool:
        key = lock_key(lock_name)
        found = functions.dynamodb.get_item(TableName=functions.table, Key=key, ConsistentRead=True)
        crowd.meet()  # all have read before the first one writes
        if "Item" in found:
            return False
        functions.dynamodb.put_item(TableName=functions.table, Item=dict(key))
        return True

    assert sum(crowd.at_once(read_then_take)) == CALLERS


# What each operation costs: requests to DynamoDB, counted between the functions and the table.

OPERATIONS = ("acquire", "heartbeat", "release")


class Passing(BaseHTTPRequestHandler):
    """Passes requests on to the emulator and counts them by the operation they ask for."""

    target: str
    seen: Counter[str]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen[self.headers["X-Amz-Target"].rpartition(".")[2]] += 1
        address = urlsplit(self.target)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        connection.request("POST", self.path, body, dict(self.headers))
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def counting(endpoint_url: str) -> Iterator[tuple[Counter[str], str]]:
    seen: Counter[str] = Counter()
    handler = type("PassingHere", (Passing,), {"target": endpoint_url, "seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield seen, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


@pytest.fixture(scope="module")
def others(deployment: Deployment) -> Functions:
    """Of another service: those whose settings are changed lose their warm environments."""
    return Functions(deployment.of("OtherService"))


@pytest.fixture(scope="module")
def seen(others: Functions) -> Iterator[Counter[str]]:
    """The functions, for the time of this module, talk to DynamoDB through a counting proxy."""
    client = others.deployment.aws.client("lambda")
    names = [others.function(operation) for operation in OPERATIONS]
    settings = {
        name: client.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        for name in names
    }
    with counting(others.deployment.aws.endpoint_url) as (seen, url):
        for name in names:
            set_variables(client, name, settings[name] | {"AWS_ENDPOINT_URL_DYNAMODB": url})
        yield seen
        for name in names:
            set_variables(client, name, settings[name])


def set_variables(client: Any, name: str, variables: dict[str, str]) -> None:  # noqa: ANN401 - a boto3 client
    client.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    wait_until(
        lambda: (
            client.get_function_configuration(FunctionName=name).get("LastUpdateStatus")
            in (None, "Successful")
        )
    )


def test_each_operation_is_one_request_and_a_takeover_two(
    others: Functions, seen: Counter[str]
) -> None:
    lock_name = unique("counted")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}

    def requests_of(operation: str, event: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        seen.clear()
        answer = others.ask(operation, event)
        return answer, dict(seen)

    one = {"UpdateItem": 1}
    assert requests_of("acquire", anna)[1] == one, "a lock never seen"
    assert requests_of("acquire", anna)[1] == one, "repeated"
    assert requests_of("acquire", ben)[1] == one, "refused"
    assert requests_of("heartbeat", anna)[1] == one
    shorter = {**anna, "lease_seconds": 1}
    assert requests_of("heartbeat", shorter)[1] == {"UpdateItem": 2}, "its lease would end sooner"
    assert requests_of("heartbeat", ben)[1] == one, "not held"

    costs: list[dict[str, int]] = []

    def taken_over() -> bool:
        answer, cost = requests_of("acquire", ben)
        costs.append(cost)
        return bool(answer["acquired"])

    wait_until(taken_over)
    assert costs[-1] == {"UpdateItem": 2}, "a takeover"
    assert requests_of("release", anna)[1] == one, "stale"
    assert requests_of("release", ben)[1] == one
    assert requests_of("release", ben)[1] == one, "repeated"
    assert requests_of("acquire", {**anna, "owner_id": unique("anna")})[1] == one, "an old lock"
