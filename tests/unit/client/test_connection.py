"""Where AWS clients come from, and which clock leases are measured by."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, create_autospec

import boto3
import pytest
from aiobotocore.session import get_session
from botocore.errorfactory import ClientExceptionsFactory
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
)

from fairlock import (
    AsyncLockClient,
    ClientUnusable,
    InvalidRequest,
    LockClient,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.aws.executions import Delivery, Liveness
from fairlock.client.connection import Connection
from fairlock.testing import FakeLockClient
from testbed.localaws import LocalAws
from tests.support.faulty_table import client_error
from tests.unit.client.doubles import Table
from tests.unit.workflows.test_executions import GRANT, TOKEN


@dataclass
class Session:
    """Makes substitutes for clients, and remembers for what.

    Step Functions knows no execution, and STS tells an account, or nothing if there is none. The
    Parameter Store answers, or fails.
    """

    account: str | None = "123456789012"
    failure: Exception | None = None
    made: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    closed: int = 0

    def client(self, service: str, **settings: Any) -> Any:  # noqa: ANN401 - a substitute
        self.made.append((service, settings))
        if isinstance(self.failure, NoRegionError):
            raise self.failure
        if service == "dynamodb":
            table = Table()
            table.close = self._close  # type: ignore[method-assign]  # a substitute's
            return table
        return SimpleNamespace(
            describe_execution=self._describe,
            get_caller_identity=self._identity,
            get_parameter=self._parameter,
            exceptions=SimpleNamespace(ExecutionDoesNotExist=NoSuchExecution),
            meta=SimpleNamespace(region_name="us-east-1"),
        )

    def _close(self) -> None:
        self.closed += 1

    def _describe(self, **_request: str) -> None:
        raise NoSuchExecution({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")

    def _identity(self) -> dict[str, str]:
        self.asked.append("sts")
        if self.account is None:
            raise EndpointConnectionError(endpoint_url="https://sts.us-east-1.amazonaws.com")
        return {"Account": self.account}

    def _parameter(self, **_request: str) -> None:
        assert self.failure is not None
        raise self.failure


NoSuchExecution = type("NoSuchExecution", (ClientError,), {})
"""As Step Functions answers for an execution that it has forgotten, or never had."""


def connection_over(session: Session, **settings: Any) -> Connection:  # noqa: ANN401 - as of Connection
    defaults: dict[str, Any] = {"dynamodb": None, "stepfunctions": None, "most_at_once": 32}
    return Connection(session=session, **{**defaults, **settings})  # type: ignore[arg-type]  # a substitute


def test_no_client_is_made_before_it_is_needed() -> None:
    session = Session()
    with LockClient("locks", session=session) as locks:  # type: ignore[arg-type]  # a substitute
        assert session.made == []
        locks.acquire("a")
        locks.acquire("b")
        assert [service for service, _ in session.made] == ["dynamodb"]
    assert session.closed == 1


def test_step_functions_is_asked_in_the_region_of_the_table_and_heartbeats_have_connections() -> (
    None
):
    session, table = Session(), Table()
    table.meta.region_name = "eu-central-1"
    connection_over(session, dynamodb=table).workflows.describe(EXECUTION)
    assert (session.made[0][0], session.made[0][1]["region_name"]) == (
        "stepfunctions",
        "eu-central-1",
    )
    connection_over(session, most_at_once=100).dynamodb()
    assert session.made[-1][1]["config"].max_pool_connections == 100 + 96


EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:Billing:run-1"


def test_a_forgotten_execution_of_this_account_is_over_and_one_of_another_may_run_there() -> None:
    """STS is asked once."""
    session = Session()
    describe = connection_over(session).workflows.describe
    for _ in range(3):
        assert describe(EXECUTION).liveness is Liveness.OVER
    for here, there in (("123456789012", "210987654321"), ("us-east-1", "eu-central-1")):
        assert describe(EXECUTION.replace(here, there)).liveness is Liveness.UNKNOWN
    assert session.asked == ["sts"]


def test_while_sts_does_not_answer_nothing_is_known_and_it_is_asked_again() -> None:
    session = Session(account=None)
    connection = connection_over(session)
    assert connection.workflows.describe(EXECUTION).liveness is Liveness.UNKNOWN
    session.account = "123456789012"
    assert connection.workflows.describe(EXECUTION).liveness is Liveness.OVER


def test_the_account_of_a_client_that_was_given_is_not_guessed() -> None:
    session = Session()
    connection = connection_over(session, stepfunctions=session.client("stepfunctions"))
    assert connection.workflows.describe(EXECUTION).liveness is Liveness.UNKNOWN
    assert session.asked == []


def test_in_a_child_clients_are_made_again_and_one_that_was_given_is_neither_used_nor_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sockets are the parent's; and to close it might wait for a thread that is not there."""
    session = Session()
    given = session.client("dynamodb")
    connection = connection_over(session, dynamodb=given, stepfunctions=given)
    other = connection_over(session)
    before = other.dynamodb()
    assert connection.dynamodb() is given
    monkeypatch.setattr(os, "getpid", lambda: -1)  # As it is after a fork.
    for each in (connection, other):
        each.forget()
    with pytest.raises(ClientUnusable, match="make a LockClient in the child"):
        connection.dynamodb()
    assert connection.workflows.wake_waiter(TOKEN, GRANT) is Delivery.UNKNOWN
    assert connection.workflows.describe("arn").liveness is Liveness.UNKNOWN
    assert other.dynamodb() is not before
    assert (len(session.made), session.closed) == (3, 0)  # The parent still uses them.


def test_what_is_no_client_and_no_session_is_refused_by_name() -> None:
    resource = boto3.resource("dynamodb", region_name="us-east-1")
    other_service = boto3.client("stepfunctions", region_name="us-east-1")
    mistaken: tuple[Any, ...] = (resource, resource.Table("locks"), "dynamodb", {}, other_service)
    for given in mistaken:
        with pytest.raises(InvalidRequest, match=r"^client: must be a client, as boto3"):
            LockClient("locks", client=given)
    with pytest.raises(InvalidRequest, match=r"^stepfunctions: must be a client"):
        LockClient("locks", stepfunctions=cast("Any", resource))
    with pytest.raises(InvalidRequest, match=r"^stepfunctions: must be a client"):
        LockClient("locks", stepfunctions=boto3.client("dynamodb", region_name="us-east-1"))  # type: ignore[arg-type]  # exchanged
    with pytest.raises(InvalidRequest, match=r"^session: must be a boto3 session"):
        LockClient("locks", session=cast("Any", "default"))


def test_a_test_double_of_a_client_is_taken_as_it_names_no_service() -> None:
    client = boto3.client("dynamodb", region_name="us-east-1")
    kind = type(client)
    for double in (
        create_autospec(client),
        create_autospec(kind),
        Mock(spec=client),
        Mock(spec=kind),
    ):
        LockClient("locks", client=double).close()
    control = create_autospec(client).meta.service_model.service_name
    assert isinstance(control, str)
    assert control != "dynamodb", "by its name alone it would be refused"


def test_a_client_of_aiobotocore_is_refused_by_the_one_and_boto3s_by_the_other() -> None:
    async def with_both() -> None:
        region = {"region_name": "us-east-1"}
        async with get_session().create_client("dynamodb", **region) as asynchronous:
            for mistaken in (asynchronous, create_autospec(asynchronous), Mock(spec=asynchronous)):
                with pytest.raises(InvalidRequest, match=r"^client: must be a client, as boto3"):
                    LockClient("locks", client=cast("Any", mistaken))
            AsyncLockClient("locks", client=asynchronous)
            with pytest.raises(InvalidRequest, match=r"^stepfunctions: .* for stepfunctions;"):
                AsyncLockClient("locks", stepfunctions=asynchronous)
            AsyncLockClient("locks", stepfunctions=create_autospec(asynchronous))
        synchronous = boto3.client("dynamodb", region_name="us-east-1")
        with pytest.raises(InvalidRequest, match=r"^client: must be a client of aiobotocore"):
            AsyncLockClient("locks", client=synchronous)
        with pytest.raises(InvalidRequest, match=r"^session: must be a session of aiobotocore"):
            AsyncLockClient("locks", session=cast("Any", boto3.Session()))

    asyncio.run(with_both())


@pytest.mark.parametrize("region", [None, "eu-west-1"])
def test_without_a_region_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, region: str | None
) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    if region is not None:
        monkeypatch.setenv("AWS_REGION", region)
    locks = LockClient("locks", session=boto3.Session())
    with pytest.raises(LockStoreMisconfigured, match="set AWS_DEFAULT_REGION") as caught:
        locks.try_acquire("a")
    assert ("boto3 does not read AWS_REGION, which is set" in str(caught.value)) == bool(region)
    assert (caught.value.table_name, caught.value.region) == ("locks", None)
    assert caught.value.code == "NoRegionError"


def test_threads_of_a_client_share_its_classes_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made again by each of two threads, the error of one would not be caught by the other."""
    made: list[object] = []
    make = ClientExceptionsFactory.create_client_exceptions

    def count(factory: ClientExceptionsFactory, model: Any) -> object:  # noqa: ANN401 - botocore's
        made.append(model)
        return make(factory, model)

    monkeypatch.setattr(ClientExceptionsFactory, "create_client_exceptions", count)
    session = boto3.Session(
        aws_access_key_id="none", aws_secret_access_key="none", region_name="eu-west-1"
    )
    connection = connection_over(cast("Session", session))
    client = connection.dynamodb()
    assert len(made) == 1  # Before any thread but this one has the client.
    _ = client.exceptions
    assert len(made) == 1
    connection.close()


# A client finds its table by name, by the environment, or by the stack that shares it.

PARAMETER = "/fairlock/Billing/LockTableName"
NO_SUCH = r"in us-east-1: no stack of this name shares a lock service in this account and region"


@pytest.mark.parametrize("value", [None, "", "from-the-environment"])
def test_a_client_without_a_table_takes_that_of_the_environment_or_says_what_to_set(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME", raising=False)
    if value is not None:
        monkeypatch.setenv("FAIRLOCK_TABLE_NAME", value)
    assert LockClient("given")._settings.table_name == "given"  # noqa: SLF001 - no getter
    if value:
        assert LockClient()._settings.table_name == value  # noqa: SLF001 - same
    else:
        with pytest.raises(InvalidRequest, match=r"set FAIRLOCK_TABLE_NAME to it, .* `from_stack`"):
            LockClient()


def test_a_client_of_a_stack_locks_in_the_table_that_the_stack_shares(
    aws: LocalAws, lock_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # It may have credentials of other tests.
    parameters = aws.client("ssm")
    parameters.put_parameter(Name=PARAMETER, Value=lock_table, Type="String", Overwrite=True)
    with LockClient.from_stack("Billing", owner_name="ben", lease=30) as locks:
        lock = locks.acquire("of-a-stack")
        assert (lock.owner_name, lock.lease) == ("ben", 30)
    with LockClient.from_stack("Billing", session=boto3.Session()) as locks:
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
        (ConnectTimeoutError(endpoint_url="https://ssm"), "did not answer"),
    ],
    ids=["permission", "region", "credentials", "old credentials", "stack", "outage"],
)
def test_each_reason_why_no_stack_is_found_says_what_to_do(failure: Exception, told: str) -> None:
    session: Any = Session(failure=failure)
    is_outage = told == "did not answer"
    error = LockStoreUnavailable if is_outage else LockStoreMisconfigured
    with pytest.raises(error, match=told) as refused:
        LockClient.from_stack("Billing", session=session)
    assert is_outage or str(refused.value).startswith(f"parameter {PARAMETER!r} in ")


@pytest.mark.parametrize("name", ["", "7", "a/b", "../x", "a" * 129, None])
def test_what_is_no_name_of_a_stack_is_refused_and_nothing_is_asked(name: Any) -> None:  # noqa: ANN401 - anything
    session: Any = Session()
    with pytest.raises(InvalidRequest, match=r"^stack_name: must be the name of a stack"):
        LockClient.from_stack(name, session=session)
    assert session.made == []


def test_a_fake_client_of_a_stack_reads_nothing() -> None:
    with FakeLockClient.from_stack("Billing", lease=30) as locks:
        assert locks.acquire("a").lease == 30
