"""What each operation costs: requests to DynamoDB, counted between the functions and the table."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.direct.functions import Functions, unique

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
def functions(deployment: Deployment) -> Functions:
    """Of another service: those whose settings are changed lose their warm environments."""
    return Functions(deployment.of("Unreaped"))


@pytest.fixture(scope="module")
def seen(functions: Functions) -> Iterator[Counter[str]]:
    """The functions, for the time of this module, talk to DynamoDB through a counting proxy."""
    client = functions.deployment.aws.client("lambda")
    names = [functions.function(operation) for operation in OPERATIONS]
    settings = {
        name: client.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        for name in names
    }
    with counting(functions.deployment.aws.endpoint_url) as (seen, url):
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
    functions: Functions, seen: Counter[str]
) -> None:
    lock_name = unique("counted")
    anna = {"lock_name": lock_name, "owner_id": unique("anna")}
    ben = {"lock_name": lock_name, "owner_id": unique("ben")}

    def requests_of(operation: str, event: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
        seen.clear()
        answer = functions.ask(operation, event)
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
