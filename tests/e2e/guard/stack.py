"""Workflows with a guard in every form, around a function that does as its input says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting

JSONATA = sfn.QueryLanguage.JSONATA
PER_EXECUTION = "{% 'form/' & $states.context.Execution.Name %}"
INPUT = "{% $states.input %}"
RESULT = "{% $states.result.Payload %}"


def function(scope: Construct, construct_id: str, **props: Any) -> lambda_.Function:  # noqa: ANN401 - a function's
    """A function of the directory `worker`."""
    return lambda_.Function(
        scope,
        construct_id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        code=lambda_.Code.from_asset(str(Path(__file__).parent / "worker")),
        timeout=Duration.minutes(5),
        **props,
    )


class Forms(Stack):
    """One state machine a form; the output `<form>Arn` names it. A stack says which forms."""

    waiting: Waiting

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:
        super().__init__(scope, construct_id)
        self.locks = locks
        self.worker = function(self, "Worker", handler="worker.handler")
        for form in self.forms():
            CfnOutput(self, f"{form.node.id}Arn", value=form.machine.state_machine_arn)

    def forms(self) -> Sequence[Form]:
        raise NotImplementedError


class GuardForms(Forms):
    """Guards that poll."""

    waiting = Waiting.poll()

    def forms(self) -> Sequence[Form]:
        return (
            Flat(self, "Flat"),
            FlatPath(self, "FlatPath"),
            ChainPath(self, "ChainPath"),
            ChainDecides(self, "ChainDecides"),
            Nested(self, "Nested"),
            TwoInARow(self, "TwoInARow"),
            MapGuarded(self, "MapGuarded"),
            MapUnguarded(self, "MapUnguarded"),
            Waits(self, "Waits"),
            GivesUp(self, "GivesUp"),
            GivesUpElsewhere(self, "GivesUpElsewhere"),
            Skips(self, "Skips"),
            SkipsElsewhere(self, "SkipsElsewhere"),
            TokenJsonata(self, "TokenJsonata"),
            TokenPath(self, "TokenPath"),
            ExpressFlat(self, "ExpressFlat"),
            ExpressUnguarded(self, "ExpressUnguarded"),
        )


class Form(Construct):
    """A workflow in a scope of its own. Each form says what its body is."""

    language: sfn.QueryLanguage | None = None
    kind: sfn.StateMachineType | None = None

    def __init__(self, scope: Forms, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.forms = scope
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(self.body()),
            query_language=self.language,
            state_machine_type=self.kind,
        )

    def body(self) -> sfn.IChainable:
        raise NotImplementedError

    def work(self, name: str = "Work", payload: object = INPUT) -> tasks.LambdaInvoke:
        """The function in a JSONata state."""
        return tasks.LambdaInvoke.jsonata(
            self,
            name,
            lambda_function=self.forms.worker,
            payload=_payload(payload),
            outputs=RESULT,
            retry_on_service_exceptions=False,
        )

    def work_by_path(self, name: str = "Work", **options: Any) -> tasks.LambdaInvoke:  # noqa: ANN401 - LambdaInvoke's
        """The function in a JSONPath state."""
        return tasks.LambdaInvoke.json_path(
            self,
            name,
            lambda_function=self.forms.worker,
            output_path="$.Payload",
            retry_on_service_exceptions=False,
            **options,
        )

    def guard(self, task: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        arguments = {
            "lock_name": PER_EXECUTION,
            "lease": Duration.seconds(30),
            "waiting": self.forms.waiting,
            **props,
        }
        return LockGuard(self, name, service=self.forms.locks, task=task, **arguments)


def _payload(value: object) -> sfn.TaskInput:
    if isinstance(value, str):
        return sfn.TaskInput.from_text(value)
    return sfn.TaskInput.from_object(value)  # type: ignore[arg-type]  # a dict by now


class Flat(Form):
    """A bare task in a JSONata machine."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(self.work())


class FlatPath(Form):
    """A bare task in a JSONPath machine."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.format("form/{}", sfn.JsonPath.string_at("$$.Execution.Name")),
        )


class ChainPath(Form):
    """Two states in a JSONPath machine, and one after the guard."""

    def body(self) -> sfn.IChainable:
        chain = sfn.Pass(self, "First").next(self.work_by_path())
        return self.guard(chain).next(sfn.Pass(self, "After"))


class ChainDecides(Form):
    """Choice, Catch, Succeed and Fail inside the guard, a state after it."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        work = self.work()
        work.add_catch(sfn.Pass.jsonata(self, "Handled", outputs="handled"), errors=["Known"])
        decide = sfn.Choice.jsonata(self, "Which?")
        decide.when(_when("$states.input = 'succeed'"), sfn.Succeed.jsonata(self, "Succeed"))
        decide.when(
            _when("$states.input = 'fail'"),
            sfn.Fail.jsonata(self, "Fail", error="Refused", cause="by choice"),
        )
        decide.otherwise(work)
        return self.guard(decide).next(sfn.Pass.jsonata(self, "After", outputs={"after": INPUT}))


class Nested(Form):
    """A guard around a guard, on two locks."""

    def body(self) -> sfn.IChainable:
        inner = self.guard(self.work(), "Inner", lock_name="{% 'inner/' & $states.input.lock %}")
        return self.guard(inner, "Outer", lock_name="{% 'outer/' & $states.input.lock %}")


class TwoInARow(Form):
    """Two guards on the same lock, one after the other."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(self.work("One"), "First").next(self.guard(self.work("Two"), "Second"))


class _Map(Form):
    language = JSONATA

    def body(self) -> sfn.IChainable:
        items = sfn.ProvideItems.jsonata(INPUT)
        each = sfn.Map.jsonata(self, "Each", items=items)
        return each.item_processor(self.each())

    def each(self) -> sfn.IChainable:
        raise NotImplementedError


class MapGuarded(_Map):
    """Iterations that want the same lock."""

    def each(self) -> sfn.IChainable:
        return self.guard(self.work())


class MapUnguarded(_Map):
    """The same without a guard."""

    def each(self) -> sfn.IChainable:
        return self.work()


class Waits(Form):
    """Waits as long as it takes."""

    def body(self) -> sfn.IChainable:
        return self.guard(self.work_by_path(), lock_name=sfn.JsonPath.string_at("$.lock"))


class GivesUp(Form):
    """Waits for two seconds at most."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            max_wait=Duration.seconds(2),
        )


class GivesUpElsewhere(Form):
    """Waits for a second at most, and then goes another way."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            max_wait=Duration.seconds(1),
            on_timeout=sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT}),
        ).next(sfn.Pass.jsonata(self, "After", outputs="after"))


class Skips(Form):
    """Would wait in the queue, but skips a busy lock."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            waiting=Waiting.queue(),
            max_wait=Duration.seconds(0),
        )


class SkipsElsewhere(Form):
    """The same in a JSONata machine, which then goes another way."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work(),
            lock_name="{% $states.input.lock %}",
            waiting=Waiting.queue(),
            max_wait=Duration.seconds(0),
            on_timeout=sfn.Succeed.jsonata(self, "Skipped", outputs={"skipped": INPUT}),
        )


class TokenJsonata(Form):
    """A chain of JSONata states whose second one is given the fencing token."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        token = LockGuard.fencing_token_of(self, "Guard")
        work = self.work(payload={"return": {"token": token}})
        return self.guard(sfn.Pass.jsonata(self, "First").next(work))


class TokenPath(Form):
    """A bare JSONPath task that is given the fencing token."""

    def body(self) -> sfn.IChainable:
        token = sfn.JsonPath.number_at(LockGuard.fencing_token_path_of(self, "Guard"))
        payload = sfn.TaskInput.from_object({"return": {"token": token}})
        return self.guard(self.work_by_path(payload=payload))


class ExpressFlat(Form):
    """A bare task in an Express workflow."""

    language = JSONATA
    kind = sfn.StateMachineType.EXPRESS

    def body(self) -> sfn.IChainable:
        return self.guard(self.work(), express=True, max_wait=Duration.seconds(30))


class ExpressUnguarded(ExpressFlat):
    """The same without the guard."""

    def body(self) -> sfn.IChainable:
        return self.work()


def _when(expression: str) -> sfn.Condition:
    return sfn.Condition.jsonata(f"{{% {expression} %}}")


# Guards whose lock service misbehaves in one way each.


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
