"""Guards in state machines of their own, all in one stack, to be synthesized at once."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard
from fairlock.cdk.guard.standalone import FunctionsByArn
from tests.unit.cdk.guard_forms import FUNCTION


class Cases(Stack):
    """One construct a case, which is a method that makes a guard, and mostly a machine."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.locks = self.service("Locks", FUNCTION)
        self.other_locks = self.service("OtherLocks", f"{FUNCTION}:of-another-service")

    def service(self, name: str, prefix: str) -> FunctionsByArn:
        return FunctionsByArn(
            self,
            name,
            acquire_function_arn=f"{prefix}:acquire",
            heartbeat_function_arn=f"{prefix}:heartbeat",
            release_function_arn=f"{prefix}:release",
        )

    def case(self, name: str) -> Case:
        return Case(self, name)


class Case(Construct):
    """A scope of its own."""

    def __init__(self, scope: Cases, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.stack = scope

    def guard(self, name: str = "Guard", task: Any = None, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {"lock_name": f"{self.node.id}/{name}", "service": self.stack.locks, **props}
        return LockGuard(self, name, task=task or self.step(f"{name}Work"), **arguments)

    def step(self, name: str, **props: Any) -> sfn.Pass:  # noqa: ANN401 - a state's
        return sfn.Pass.jsonata(self, name, **props)

    def call(self, name: str, **props: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - a task's
        function = lambda_.Function.from_function_arn(self, f"{name}Function", f"{FUNCTION}:work")
        return tasks.LambdaInvoke.jsonata(self, name, lambda_function=function, **props)

    def machine(self, body: sfn.IChainable, **props: Any) -> None:  # noqa: ANN401 - a machine's
        definition = sfn.DefinitionBody.from_chainable(body)
        sfn.StateMachine(self, "Machine", definition_body=definition, **props)

    def map(
        self, name: str, body: sfn.IChainable, kind: sfn.StateMachineType | None = None
    ) -> sfn.IChainable:
        """A Map; a Distributed Map with children of this kind, if one is given."""
        items = sfn.ProvideItems.jsonata("{% $states.input %}")
        if kind is None:
            return sfn.Map.jsonata(self, name, items=items).item_processor(body)
        children = sfn.DistributedMap.jsonata(self, name, items=items, map_execution_type=kind)
        return children.item_processor(body)
