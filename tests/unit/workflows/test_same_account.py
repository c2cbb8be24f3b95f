"""A workflow of which no one can hear is refused: its lock would never be free."""

from __future__ import annotations

import re

import pytest

from fairlock.errors import InvalidRequest
from lambdas import acquire, heartbeat, release
from lambdas.runtime import require_same_account
from tests.support.bad_inputs import BEAT, NAMED, VALID_EXECUTION
from tests.support.lambda_context import LambdaContextStub

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:acquire"
ELSEWHERE = {
    "another account": VALID_EXECUTION.replace("123456789012", "210987654321"),
    "another region": VALID_EXECUTION.replace("us-east-1", "eu-west-1"),
    "another partition": VALID_EXECUTION.replace("arn:aws:", "arn:aws-cn:"),
}


@pytest.mark.parametrize("near", [None, VALID_EXECUTION])
def test_no_workflow_and_one_of_this_account_and_region_are_served(near: str | None) -> None:
    require_same_account(near, function_arn=FUNCTION)
    require_same_account(near, function_arn=f"{FUNCTION}:live")


@pytest.mark.parametrize("far", ELSEWHERE.values(), ids=ELSEWHERE.keys())
@pytest.mark.parametrize(
    ("handler", "event"),
    [(acquire.handler, NAMED), (heartbeat.handler, BEAT), (release.handler, NAMED)],
)
def test_every_function_refuses_a_workflow_elsewhere_before_it_asks_the_table(
    far: str, handler: object, event: dict[str, object]
) -> None:
    """There is no table here, nor are there credentials."""
    assert callable(handler)
    rule = re.escape("must be an execution of this service's account and region (123456789012, us-")
    with pytest.raises(InvalidRequest, match=f"^execution_arn: {rule}"):
        handler({**event, "execution_arn": far}, LambdaContextStub())
