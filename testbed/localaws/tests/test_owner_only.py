"""Correction owner_only: what a web page can send is refused, whatever it asks for."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from unittest import mock
from urllib.parse import urlsplit

import pytest
from botocore import auth
from botocore.exceptions import ClientError

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]

PAGE: Final = "https://page.example"
OF_PAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "a script's request": {"Origin": PAGE, "Sec-Fetch-Site": "cross-site"},
    "a script of an old browser": {"Origin": PAGE},
    "a page in a sandbox": {"Origin": "null"},
    "another server on this machine": {"Origin": "http://localhost:8000"},
    "an image": {"Sec-Fetch-Site": "cross-site"},
    "a link": {"Sec-Fetch-Site": "none"},
    "a name that resolves to 127.0.0.1": {"Host": "page.example:4566"},
    "a name with a service in it": {"Host": "sqs.us-east-1.page.example"},
    "a name that begins like ours": {"Host": "localhost.page.example"},
    "a name that ends like ours": {"Host": "page-localhost"},
    "a number that begins like ours": {"Host": "127.0.0.1.page.example"},
    "every interface": {"Host": "0.0.0.0:4566"},
    "a name before a number": {"Host": "bucket.127.0.0.1"},
    "none": {"Host": ""},
}
OF_OWNERS: Final = (
    "127.0.0.1",
    "127.0.0.1:4566",
    "localhost",
    "LOCALHOST:4566",
    "[::1]:4566",
    "bucket.s3.localhost:4566",
)
OPENS_A_WEBSOCKET: Final = {
    "Host": "iot.us-east-1.localhost",
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "mqtt",
}
every_request_of_pages = pytest.mark.parametrize("headers", OF_PAGES.values(), ids=OF_PAGES)


def answer(
    bench: Workbench,
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    path: str = "/",
    body: bytes = b"",
) -> http.client.HTTPResponse:
    """What a request with just these headers is answered; without a Host it names 127.0.0.1."""
    connection = http.client.HTTPConnection(urlsplit(bench.aws.endpoint_url).netloc, timeout=10)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": "127.0.0.1", **headers}.items():
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body or None)
    response = connection.getresponse()
    connection.close()
    return response


def signature(bench: Workbench, access_key: str | None = None) -> dict[str, str]:
    """The header that every SDK sends; the emulator checks no more of it."""
    scope = "20300101/us-east-1/sqs/aws4_request"
    key = bench.aws.access_key if access_key is None else access_key
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential={key}/{scope}, Signature=0"}


def makes_a_queue(bench: Workbench, headers: Mapping[str, str]) -> bool:
    """Whether a request that any image can cause, an address and no more, changes something."""
    name = f"made-{len(bench.queues.list_queues().get('QueueUrls', []))}"
    # With the secret, which a page does not know: each of these objections is enough.
    signed = {**signature(bench), **headers}
    answer(bench, signed, path=f"/?Action=CreateQueue&QueueName={name}")
    queues = bench.queues.list_queues(QueueNamePrefix=name).get("QueueUrls", [])
    return bool(queues)


@every_request_of_pages
def test_a_page_can_change_nothing(corrected: Workbench, headers: Mapping[str, str]) -> None:
    assert not makes_a_queue(corrected, headers)


@every_request_of_pages
def test_control_a_page_can_make_a_queue(
    left_out: WithoutCorrection, headers: Mapping[str, str]
) -> None:
    assert makes_a_queue(left_out("owner_only"), headers)


@pytest.mark.parametrize("path", ["/", "/_ministack/health", "/_ministack/rds/iam-auth"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_every_path_and_method_is_refused(corrected: Workbench, method: str, path: str) -> None:
    for headers in OF_PAGES.values():
        assert (
            answer(corrected, headers, method=method, path=path).status == http.HTTPStatus.FORBIDDEN
        )


@pytest.mark.parametrize("host", OF_OWNERS)
def test_loopback_names_of_the_emulator_are_answered(corrected: Workbench, host: str) -> None:
    headers = {"Host": host, **signature(corrected)}
    assert answer(corrected, headers, path="/_ministack/health").status == http.HTTPStatus.OK


def permissions(bench: Workbench) -> set[str]:
    """The headers that let pages of other origins read an answer."""
    answers = [answer(bench, signature(bench), method=method) for method in ("GET", "OPTIONS")]
    names = {name.lower() for each in answers for name in each.headers}
    return {name for name in names if name.startswith("access-control-")}


def test_no_answer_may_be_read_by_pages(corrected: Workbench) -> None:
    assert permissions(corrected) == set()


def test_control_every_answer_may_be_read_by_pages(left_out: WithoutCorrection) -> None:
    assert "access-control-allow-origin" in permissions(left_out("owner_only"))


@pytest.mark.parametrize("of_page", [{"Origin": PAGE}, {"Host": "iot.us-east-1.page.example"}])
def test_a_page_opens_no_websocket(corrected: Workbench, of_page: Mapping[str, str]) -> None:
    assert answer(corrected, {**OPENS_A_WEBSOCKET, **of_page}).status == http.HTTPStatus.FORBIDDEN
    opened = answer(corrected, {**OPENS_A_WEBSOCKET, **signature(corrected)})
    assert opened.status == http.HTTPStatus.SWITCHING_PROTOCOLS


@pytest.mark.parametrize("of_page", [{"Origin": PAGE}, {"Host": "iot.us-east-1.page.example"}])
def test_control_a_page_opens_a_websocket(
    left_out: WithoutCorrection, of_page: Mapping[str, str]
) -> None:
    opened = answer(left_out("owner_only"), {**OPENS_A_WEBSOCKET, **of_page})
    assert opened.status == http.HTTPStatus.SWITCHING_PROTOCOLS


QUEUE: Final = "Action=CreateQueue&QueueName={name}"
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
OF_OLD_BROWSERS: Final[Mapping[str, Mapping[str, str]]] = {
    "an image": {"Accept": "image/*"},
    "an image with a cookie": {"Accept": "image/*", "Cookie": "a=b"},
    "an image that says where it is": {"Accept": "image/*", "Referer": f"{PAGE}/"},
    "a link in a mail": {"Accept": "text/html"},
    "a script": {"Accept": "*/*"},
    "a style": {"Accept": "text/css"},
    "a page of a web view": {"User-Agent": "Mozilla/5.0", "Accept": "*/*"},
    "an account's number": {"Authorization": "AWS4-HMAC-SHA256 Credential=000000000000/x"},
    "the key of other emulators": {"Authorization": "AWS4-HMAC-SHA256 Credential=test/x"},
    "another way to sign in": {"Authorization": "Basic dGVzdDp0ZXN0"},
}
KINDS: Final = [(method, name) for method in ("GET", "POST") for name in OF_OLD_BROWSERS]
"""Twenty kinds of requests without fetch metadata."""


def effect_of(bench: Workbench, method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request of this kind makes a queue."""
    name = f"old-{len(bench.queues.list_queues().get('QueueUrls', []))}"
    query = QUEUE.format(name=name)
    if method == "POST":
        answer(bench, {**FORM, **headers}, method=method, body=query.encode())
    else:
        answer(bench, headers, path=f"/?{query}")
    return bool(bench.queues.list_queues(QueueNamePrefix=name).get("QueueUrls"))


@pytest.mark.parametrize(("method", "name"), KINDS)
def test_a_page_without_fetch_metadata_has_no_effect(
    corrected: Workbench, method: str, name: str
) -> None:
    assert not effect_of(corrected, method, OF_OLD_BROWSERS[name])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_who_knows_the_secret_has_one(corrected: Workbench, method: str) -> None:
    assert effect_of(corrected, method, signature(corrected))


@pytest.mark.parametrize(("method", "name"), KINDS)
def test_control_without_the_correction_a_page_without_fetch_metadata_has_an_effect(
    left_out: WithoutCorrection, method: str, name: str
) -> None:
    assert effect_of(left_out("owner_only"), method, OF_OLD_BROWSERS[name])


def test_the_secret_is_another_at_each_start(
    corrected: Workbench, left_out: WithoutCorrection
) -> None:
    assert corrected.aws.access_key != left_out("owner_only").aws.access_key


def test_keys_that_the_instance_issues_are_served(corrected: Workbench) -> None:
    iam = corrected.aws.client("iam")
    iam.create_user(UserName="stranger")
    key = iam.create_access_key(UserName="stranger")["AccessKey"]["AccessKeyId"]
    assert effect_of(corrected, "GET", signature(corrected, key))
    assert not effect_of(corrected, "GET", signature(corrected, f"{key}X"))


# Correction signature_age: a machine whose clock is more than 5 minutes wrong is refused.


def code_of_a_request(bench: Workbench, minutes: float) -> str:
    """What a machine is answered whose clock is so many minutes ahead; empty if it is served."""

    def now(*_: object, **__: object) -> datetime:
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        return moment.replace(tzinfo=None)

    client = bench.aws.client("dynamodb")
    with mock.patch.object(auth, "get_current_datetime", now):
        try:
            client.list_tables()
        except ClientError as refused:
            return str(refused.response["Error"]["Code"])
    return ""


@pytest.mark.parametrize("minutes", [-6, 6, -120, 120])
def test_a_clock_that_is_wrong_by_more_is_refused(corrected: Workbench, minutes: float) -> None:
    assert code_of_a_request(corrected, minutes) == "InvalidSignatureException"


@pytest.mark.parametrize("minutes", [-4, 0, 4])
def test_a_clock_that_is_wrong_by_less_is_served(corrected: Workbench, minutes: float) -> None:
    assert code_of_a_request(corrected, minutes) == ""


@pytest.mark.parametrize("minutes", [-120, 120])
def test_control_the_emulator_serves_any(left_out: WithoutCorrection, minutes: float) -> None:
    assert code_of_a_request(left_out("signature_age"), minutes) == ""
