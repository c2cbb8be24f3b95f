"""Each case runs against the embedded AWS, and against a real account where that is asked for.

The docstring of a case says what it decides; it is also the reason of a skip.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import boto3
import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.locks import ContestedLock, QueuedLock
from tests.smoke.account import Account, embedded, in_aws

AWS = pytest.param("aws", marks=[pytest.mark.aws, pytest.mark.timeout(1800)])


@pytest.fixture(scope="session")
def embedded_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with embedded(tmp_path_factory.mktemp("smoke")) as account:
        yield account


@pytest.fixture(scope="session")
def aws_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with in_aws(tmp_path_factory.mktemp("smoke")) as account:
        yield account


@pytest.fixture(params=["embedded", AWS])
def account(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Account:
    decides = decided_by(request.function)
    if request.param == "aws":
        skip_without_account(decides)
    deployed: Account = request.getfixturevalue(f"{request.param}_account")
    record = partial(record_property, "figures")
    return replace(deployed, decides=decides, record=record)


@pytest.fixture
def lock(account: Account) -> ContestedLock:
    """A lock that no other case uses."""
    return ContestedLock(account.workflows, f"smoke/{uuid.uuid4()}")


@pytest.fixture
def taken(account: Account) -> QueuedLock:
    """Another one, which the case holds."""
    return QueuedLock(account.workflows, f"smoke/{uuid.uuid4()}")


def decided_by(case: Callable[..., object]) -> str:
    """What a case decides, by its docstring: one sentence that begins with "Decides whether"."""
    sentence = " ".join((inspect.getdoc(case) or "").split("\n\n")[0].split())
    assert sentence.startswith("Decides whether "), f"{case.__name__} does not say what it decides"
    return sentence


def skip_without_account(decides: str) -> None:
    if os.environ.get("FAIRLOCK_AWS_SMOKE_TEST") != "1":
        pytest.skip(f"{decides} Needs an AWS account: set FAIRLOCK_AWS_SMOKE_TEST=1")
    if boto3.Session().get_credentials() is None:
        pytest.skip(f"{decides} Needs an AWS account: no credentials found")


# What the cases ask of executions and locks.

LONG_SECONDS = 900
"""A bound of the longest waits in a real account."""
_AT_ONCE_IN_AWS = 20
_AT_ONCE = 2

_T = TypeVar("_T")


def in_parallel(account: Account, call: Callable[[Any], _T], values: Iterable[Any]) -> list[_T]:
    """The answers, in the order of the values; few calls at once in the embedded AWS."""
    with ThreadPoolExecutor(_AT_ONCE if account.is_embedded else _AT_ONCE_IN_AWS) as pool:
        return list(pool.map(call, values))


def outputs(workflows: Deployment, *executions: str) -> list[Any]:
    """The outputs of executions, all of which must succeed."""
    ends = [workflows.ended(each, seconds=LONG_SECONDS) for each in executions]
    failed = [end for end in ends if end.status != "SUCCEEDED"]
    assert not failed, failed[:3]
    return [end.output for end in ends]


def dead_letters(account: Account) -> int:
    """How many messages the reaper could not handle."""
    answer = account.client("sqs").get_queue_attributes(
        QueueUrl=account.workflows.outputs[account.workflows.service]["ReapDeadLetterQueueUrl"],
        AttributeNames=["ApproximateNumberOfMessages"],
    )
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
