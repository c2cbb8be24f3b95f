"""Durable functions that hold locks, and a workflow that wants the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import LockGuard, LockService, Waiting
from infra.durable_package import package

WORKER: Final = Path(__file__).parent / "worker"
TIMES_OUT_SECONDS: Final = 6


class DurableForms(Stack):
    """Two durable functions, one of which soon times out, and a guarded workflow."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        locks: LockService,
        **stack_props: Any,  # noqa: ANN401 - the props of Stack
    ) -> None:
        super().__init__(scope, construct_id, **stack_props)
        self.locks = locks
        with tempfile.TemporaryDirectory() as directory:
            # CDK copies it into the cloud assembly at once.
            built = package(WORKER, Path(directory, "function"))
            self._declare(lambda_.Code.from_asset(str(built)))

    def _declare(self, code: lambda_.Code) -> None:
        self._code = code
        for name, seconds in (("Durable", 3600), ("TimesOut", TIMES_OUT_SECONDS)):
            function = self._function(
                name,
                "durable",
                durable_config=lambda_.DurableConfig(execution_timeout=Duration.seconds(seconds)),
            )
            self.locks.grant_durable(function)
            CfnOutput(self, f"{name}FunctionName", value=function.function_name)
        self._workflow()

    def _workflow(self) -> None:
        token = LockGuard.fencing_token_of(self, "Guard")
        payload = {
            "name": "{% $states.input.name %}",
            "notes": "{% $states.input.notes %}",
            "token": token,
        }
        guard = LockGuard(
            self,
            "Guard",
            service=self.locks,
            task=tasks.LambdaInvoke.jsonata(
                self,
                "Work",
                lambda_function=self._function("Plain", "plain"),
                payload=sfn.TaskInput.from_object(payload),
            ),
            lock_name="{% $states.input.lock %}",
            waiting=Waiting.queue(fallback=Duration.minutes(5)),
            max_wait=Duration.minutes(10),
        )
        body = sfn.DefinitionBody.from_chainable(guard)
        machine = sfn.StateMachine(self, "Machine", definition_body=body)
        CfnOutput(self, "BesideDurableArn", value=machine.state_machine_arn)

    def _function(
        self, name: str, handler: str, durable_config: lambda_.DurableConfig | None = None
    ) -> lambda_.Function:
        return lambda_.Function(
            self,
            name,
            code=self._code,
            handler=f"inside.{handler}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            timeout=Duration.seconds(60),
            durable_config=durable_config,
        )
