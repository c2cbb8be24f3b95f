"""Guards whose lock service misbehaves in one way each."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from tests.e2e.guard.stack import INPUT, PER_EXECUTION, RESULT, function


@dataclass(frozen=True)
class Spoilt:
    """A lock service with other functions in the place of its own."""

    acquire_function: lambda_.IFunction
    heartbeat_function: lambda_.IFunction
    release_function: lambda_.IFunction


class GuardFaults(Stack):
    """One state machine a fault; the output `<fault>Arn` names it."""

    def __init__(self, scope: Construct, construct_id: str, *, locks: LockService) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = function(self, "Worker", handler="worker.handler")
        self._machine("NotReleased", self._spoilt(release=self._meddler("broken")))
        for fault in ("lost_reply", "granted_and_failed", "released_meanwhile"):
            name = "".join(word.title() for word in fault.split("_"))
            self._machine(name, self._spoilt(acquire=self._meddler(fault)))
        never_held = self._spoilt(acquire=self._meddler("never_held"))
        self._machine("NeverHeld", never_held, waiting=Waiting.queue(), max_wait_seconds=6)

    def _spoilt(
        self, *, acquire: lambda_.IFunction | None = None, release: lambda_.IFunction | None = None
    ) -> Spoilt:
        return Spoilt(
            acquire_function=acquire or self.locks.acquire_function,
            heartbeat_function=self.locks.heartbeat_function,
            release_function=release or self.locks.release_function,
        )

    def _meddler(self, fault: str) -> lambda_.Function:
        meddler = function(
            self,
            f"Meddler-{fault}",
            handler=f"meddling.{fault}",
            environment={
                "ACQUIRE": self.locks.acquire_function.function_name,
                "RELEASE": self.locks.release_function.function_name,
            },
        )
        self.locks.grant_use(meddler)
        return meddler

    def _machine(
        self,
        name: str,
        service: ILockService,
        *,
        waiting: Waiting | None = None,
        max_wait_seconds: int = 20,
    ) -> None:
        scope = Construct(self, name)
        work = tasks.LambdaInvoke.jsonata(
            scope,
            "Work",
            lambda_function=self.worker,
            payload=sfn.TaskInput.from_text(INPUT),
            outputs=RESULT,
            retry_on_service_exceptions=False,
        )
        guard = LockGuard(
            scope,
            "Guard",
            service=service,
            task=work,
            lock_name=PER_EXECUTION,
            max_wait=Duration.seconds(max_wait_seconds),
            waiting=waiting or Waiting.poll(),
        )
        after = sfn.Pass.jsonata(scope, "After", outputs={"after": INPUT})
        body = sfn.DefinitionBody.from_chainable(guard.next(after))
        machine = sfn.StateMachine(scope, "Machine", definition_body=body)
        CfnOutput(self, f"{name}Arn", value=machine.state_machine_arn)
