"""What a caller of the functions reads of a request that breaks a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlock.errors import InvalidRequest
from lambdas import acquire, force_release, heartbeat, inspect, release
from tests.support.lambda_context import LambdaContextStub

HANDLERS = [acquire.handler, heartbeat.handler, release.handler, force_release.handler]

pytestmark = pytest.mark.usefixtures("lambda_environment")


@pytest.mark.parametrize("handler", [*HANDLERS, inspect.handler])
def test_each_function_tells_field_rule_and_value_as_data(handler: Any) -> None:  # noqa: ANN401 - a handler
    with pytest.raises(InvalidRequest) as caught:
        handler({"lock_name": 7}, LambdaContextStub())
    assert type(caught.value).__name__ == "InvalidRequest"  # By which Lambda reports it.
    told, data = str(caught.value).splitlines()
    rule = caught.value.rule
    assert json.loads(data) == {"field": "lock_name", "rule": rule, "value": "7"}
    assert told == f"lock_name: {rule} (got 7)"
