"""What the machines are made of: work that needs no function, and a chain of the wrong kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import jsii
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

LEASE_SECONDS: Final = 2

INPUT: Final = "{% $states.input %}"
LOCK: Final = "{% $states.input.lock %}"
REPLY: Final = "{% $states.result.Payload %}"
THIS_EXECUTION: Final = "{% $states.context.Execution.Id %}"

OWNER_OF_THE_EXECUTION: Final = "{% $states.context.Execution.Name %}"
"""As good as its ARN, which may be longer than an owner id."""
OWNER_OF_THE_CALL: Final = "{% $uuid() %}"
"""In the arguments of a call: another one whenever the call is repeated."""


def call(
    scope: Construct,
    name: str,
    function: lambda_.IFunction,
    **props: Any,  # noqa: ANN401 - LambdaInvoke's
) -> tasks.LambdaInvoke:
    """A call that is repeated only if the caller says so."""
    return tasks.LambdaInvoke.jsonata(
        scope, name, lambda_function=function, retry_on_service_exceptions=False, **props
    )


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """In which single way a chain is wrong. The default is wrong in one way: it catches nothing.

    Attributes:
        owner_id: who it says it is.
        told_execution: whether the service is told which execution the lease belongs to.
        outputs: what leaves the chain; None is what the release call left.
    """

    owner_id: str = OWNER_OF_THE_EXECUTION
    told_execution: bool = True
    outputs: str | None = "{% {'work': $states.input, 'release': $states.result.Payload} %}"


class Chain(sfn.StateMachineFragment):
    """acquire → acquired? → work → release, and round again without end while it is not.

    What people write who have not met 05's table yet.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire: lambda_.IFunction,
        release: lambda_.IFunction,
        work: sfn.IChainable,
        mistake: Mistake,
    ) -> None:
        super().__init__(scope, construct_id)
        request = {
            "lock_name": LOCK,
            "owner_id": mistake.owner_id,
            "owner_name": THIS_EXECUTION,
            **({"execution_arn": THIS_EXECUTION} if mistake.told_execution else {}),
            "lease_seconds": LEASE_SECONDS,
        }
        self._acquire = call(
            self,
            "Acquire",
            acquire,
            payload=sfn.TaskInput.from_object(request),
            outputs=INPUT,
            assign={"lock": REPLY},
        )
        self._acquire.add_retry(errors=["ConnectionError"], interval=Duration.seconds(1))
        owner = {"lock_name": "{% $lock.lock_name %}", "owner_id": "{% $lock.owner_id %}"}
        outputs = {"outputs": mistake.outputs} if mistake.outputs else {}
        self._release = call(
            self, "Release", release, payload=sfn.TaskInput.from_object(owner), **outputs
        )
        again = sfn.Wait.jsonata(self, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1)))
        acquired = sfn.Choice.jsonata(self, "Acquired?")
        inside = sfn.Chain.start(work).next(self._release)
        acquired.when(sfn.Condition.jsonata("{% $lock.acquired %}"), inside)
        acquired.otherwise(again.next(self._acquire))
        self._acquire.next(acquired)

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        return self._acquire

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        return [self._release]
