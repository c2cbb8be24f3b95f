"""A client finds its table by name, by the environment, or by the stack that shares it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectTimeoutError, NoCredentialsError, NoRegionError

from fairlock import (
    InvalidRequest,
    LockClient,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws
from tests.support.faults import client_error

PARAMETER = "/fairlock/Billing/LockTableName"
NO_SUCH = r"in us-east-1: no stack of this name shares a lock service in this account and region"


class Store:
    """A boto3 session whose Parameter Store answers, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.asked: list[str] = []
        self.meta = SimpleNamespace(region_name="us-east-1")

    def client(self, service: str, **_more: object) -> Any:  # noqa: ANN401 - a substitute
        if isinstance(self.failure, NoRegionError):
            raise self.failure
        assert service == "ssm"
        return self

    def get_parameter(self, **request: str) -> dict[str, Any]:
        self.asked.append(request["Name"])
        if self.failure is not None:
            raise self.failure
        return {"Parameter": {"Value": "billing-locks"}}


def test_a_client_without_a_table_takes_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "from-the-environment")
    assert LockClient()._settings.table_name == "from-the-environment"  # noqa: SLF001 - no getter
    assert LockClient("given")._settings.table_name == "given"  # noqa: SLF001 - same


@pytest.mark.parametrize("value", [None, ""])
def test_without_both_the_error_says_what_to_set(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    if value is not None:
        monkeypatch.setenv("FAIRLOCK_TABLE_NAME", value)
    with pytest.raises(InvalidRequest, match=r"set FAIRLOCK_TABLE_NAME to it, .* `from_stack`"):
        LockClient()


def test_a_client_of_a_stack_locks_in_the_table_that_the_stack_shares(
    aws: LocalAws, lock_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    parameters = aws.client("ssm")
    parameters.put_parameter(Name=PARAMETER, Value=lock_table, Type="String", Overwrite=True)
    with LockClient.from_stack("Billing", owner_name="ben", lease=30) as locks:
        lock = locks.acquire("of-a-stack")
        assert (lock.owner_name, lock.lease) == ("ben", 30)
    session = boto3.Session()
    with LockClient.from_stack("Billing", session=session) as locks:
        assert locks.try_acquire("of-a-stack") is not None
    with pytest.raises(LockStoreMisconfigured, match=NO_SUCH) as refused:
        LockClient.from_stack("Nowhere")
    assert "'/fairlock/Nowhere/LockTableName'" in str(refused.value)
    assert (refused.value.code, refused.value.region) == ("ParameterNotFound", "us-east-1")


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (client_error("AccessDeniedException"), "allow ssm:GetParameter on it, or set FAIRLOCK"),
        (NoRegionError(), "in no known region: set AWS_DEFAULT_REGION"),
        (NoCredentialsError(), "check the AWS credentials"),
        (client_error("ExpiredTokenException"), "check the AWS credentials"),
        (client_error("ParameterNotFound"), NO_SUCH),
    ],
    ids=["permission", "region", "credentials", "old credentials", "stack"],
)
def test_each_reason_why_a_stack_is_not_found_says_what_to_do(
    failure: Exception, told: str
) -> None:
    store: Any = Store(failure)
    with pytest.raises(LockStoreMisconfigured, match=told) as refused:
        LockClient.from_stack("Billing", session=store)
    assert str(refused.value).startswith(f"parameter {PARAMETER!r} in ")


def test_a_parameter_store_that_does_not_answer_is_no_wrong_name() -> None:
    store: Any = Store(ConnectTimeoutError(endpoint_url="https://ssm"))
    with pytest.raises(LockStoreUnavailable, match="did not answer"):
        LockClient.from_stack("Billing", session=store)


@pytest.mark.parametrize("name", ["", "7", "a/b", "../x", "a" * 129, None])
def test_what_is_no_name_of_a_stack_is_refused_and_nothing_is_asked(name: Any) -> None:  # noqa: ANN401 - anything
    store: Any = Store()
    with pytest.raises(InvalidRequest, match=r"^stack_name: must be the name of a stack"):
        LockClient.from_stack(name, session=store)
    assert store.asked == []


def test_what_is_no_session_is_refused() -> None:
    wrong: Any = "eu-west-1"
    with pytest.raises(InvalidRequest, match=r"^session: "):
        LockClient.from_stack("Billing", session=wrong)


def test_a_fake_client_of_a_stack_reads_nothing() -> None:
    with FakeLockClient.from_stack("Billing", lease=30) as locks:
        assert locks.acquire("a").lease == 30
