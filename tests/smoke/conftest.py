"""Each case runs against the embedded AWS, and against a real account where that is asked for.

The docstring of a case says what it decides; it is also the reason of a skip.
"""

from __future__ import annotations

import inspect
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import boto3
import pytest

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
def lock() -> str:
    """The name of a lock that no other case uses."""
    return f"smoke/{uuid.uuid4()}"


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
