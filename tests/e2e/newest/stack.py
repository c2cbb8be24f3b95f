"""Workflows of which only the newest is to run, in each way to wait."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, Waiting

FALLBACK_SECONDS: Final = 10
BY_PATH: Final = sfn.QueryLanguage.JSON_PATH


class NewestForms(Stack):
    """One state machine a form; the output `<form>Arn` names it."""

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:
        super().__init__(scope, construct_id)
        self._locks = locks
        fallback = Duration.seconds(FALLBACK_SECONDS)
        version = "{% $states.input.version %}"
        self._machine("NewestQueue", only_newest=version, waiting=Waiting.queue(fallback=fallback))
        self._machine("NewestPoll", only_newest=version, waiting=Waiting.poll())
        self._machine("NewestByTime", only_newest=True)
        self._machine("NewestFails", only_newest=version, fails=True)

    def _machine(self, name: str, *, fails: bool = False, **props: Any) -> None:  # noqa: ANN401 - a guard's
        scope = Construct(self, name)
        work = sfn.Pass.jsonata(scope, "Work", outputs="ran")
        if not fails:
            superseded = sfn.Pass.jsonata(scope, "Superseded", outputs="superseded")
            props["on_superseded"] = superseded
        guard = LockGuard(
            scope,
            "Guard",
            service=self._locks,
            task=work,
            lock_name="{% $states.input.lock %}",
            max_wait=Duration.minutes(20),
            **props,
        )
        machine = sfn.StateMachine(
            scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(guard)
        )
        CfnOutput(self, f"{name}Arn", value=machine.state_machine_arn)
