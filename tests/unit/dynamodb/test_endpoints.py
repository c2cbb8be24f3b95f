"""To which host a client's requests go: what a proxy or an allow-list has to let through."""

from __future__ import annotations

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders

ACCOUNT = "123456789012"


def host_of_a_request(monkeypatch: pytest.MonkeyPatch, mode: str | None) -> str:
    """The host of a request whose credentials carry the account."""
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
        return AWSResponse(
            request.url, 200, HTTPHeaders.from_dict({"x-amzn-requestid": "1"}), _Body()
        )

    client.meta.events.register("before-send.dynamodb", answer)  # type: ignore[arg-type]  # it answers
    client.list_tables()
    client.close()
    return hosts[0]


class _Body:
    def stream(self) -> list[bytes]:
        return [b"{}"]


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
    assert host_of_a_request(monkeypatch, mode) == host
