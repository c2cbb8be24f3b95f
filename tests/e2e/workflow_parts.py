"""What workflows of several suites are made of."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockService
from infra.durable_package import package

LOCK: Final = "{% $states.input.lock %}"
SECONDS: Final = "{% $states.input.seconds %}"
INPUT: Final = "{% $states.input %}"
RESULT: Final = "{% $states.result.Payload %}"


def invoke(
    scope: Construct,
    name: str,
    function: lambda_.IFunction,
    payload: object = INPUT,
    **options: Any,  # noqa: ANN401 - a LambdaInvoke's
) -> tasks.LambdaInvoke:
    """A function in a JSONata state, whose call is not repeated."""
    given = sfn.TaskInput.from_text if isinstance(payload, str) else sfn.TaskInput.from_object
    return tasks.LambdaInvoke.jsonata(
        scope,
        name,
        lambda_function=function,
        payload=given(payload),  # type: ignore[arg-type]  # one type for each
        retry_on_service_exceptions=False,
        **{"outputs": RESULT, **options},
    )


@contextmanager
def durable_code() -> Iterator[lambda_.Code]:
    """The code of `durable/worker`, for functions made in this block: CDK copies it for each."""
    with tempfile.TemporaryDirectory() as directory:
        built = package(Path(__file__).parent / "durable" / "worker", Path(directory, "function"))
        yield lambda_.Code.from_asset(str(built))


def durable_function(
    scope: Construct,
    construct_id: str,
    *,
    locks: ILockService,
    code: lambda_.Code,
    seconds: int,
    key: kms.IKey | None = None,
    **props: Any,  # noqa: ANN401 - a function's
) -> lambda_.Function:
    """A durable function that may hold locks, each execution for so long; an output names it."""
    function = lambda_.Function(
        scope,
        construct_id,
        code=code,
        handler="inside.durable",
        runtime=lambda_.Runtime.PYTHON_3_13,
        timeout=Duration.minutes(1),
        durable_config=lambda_.DurableConfig(execution_timeout=Duration.seconds(seconds)),
        **props,
    )
    assert isinstance(locks, LockService)
    locks.grant_durable(function, key=key)
    CfnOutput(scope, f"{construct_id}FunctionName", value=function.function_name)
    return function


def stay(scope: Construct, name: str = "Stay") -> sfn.Chain:
    """Works for `seconds`, and returns from when to when; fails at the end if asked to `raise`.

    A Wait state: the cold start of a function would make the tests slow and the times inexact.
    """
    part = Construct(scope, name)
    began = "{% $merge([$states.input, {'began_ms': $millis()}]) %}"
    span = "{% {'began_ms': $states.input.began_ms, 'ended_ms': $millis()} %}"
    enter = sfn.Pass.jsonata(part, "Begin", state_name=f"{name}: Begin", outputs=began)
    wait = sfn.Wait.jsonata(
        part,
        "Wait",
        state_name=name,
        time=sfn.WaitTime.seconds(SECONDS),
    )
    ends = sfn.Choice.jsonata(part, "How?", state_name=f"{name}: How?")
    fail = sfn.Fail.jsonata(
        part,
        "Fail",
        state_name=f"{name}: Fail",
        error="{% $states.input.raise %}",
        cause="{% $string($millis()) %}",
    )
    leave = sfn.Pass.jsonata(part, "End", state_name=f"{name}: End", outputs=span)
    ends.when(sfn.Condition.jsonata("{% $exists($states.input.raise) %}"), fail)
    ends.otherwise(leave)
    return sfn.Chain.custom(enter, [leave], enter.next(wait).next(ends))


def once_each(scope: Construct, guarded: sfn.IChainable) -> sfn.Map:
    """Three iterations at once, all with the machine's own input."""
    items = sfn.ProvideItems.jsonata("{% [$states.input, $states.input, $states.input] %}")
    each = sfn.Map.jsonata(scope, "Each", items=items)
    return each.item_processor(guarded)
