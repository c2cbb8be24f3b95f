"""Workflows that die in every way, with leases so long that no lease frees anything in a test.

The same stand over the service of `Fairlock`, and over one by which deaths go unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stage
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from fairlock.cdk.service.functions import handler_code
from fairlock.names import REAP_QUEUE_VARIABLE
from tests.e2e.guard.stack import INPUT, RESULT, Form, Forms, Spoilt
from tests.e2e.known_failures.lock import Chain, Mistake
from tests.e2e.lifetimes.stack import Lifetime, Lifetimes, Plain, PlainRuntime
from tests.e2e.workflow_parts import runtime_error, stay

HERE: Final = Path(__file__).parent
LEASE_SECONDS: Final = 600
LONG_INTERVAL_SECONDS: Final = 20
UNTOLD_INTERVAL_SECONDS: Final = 4
TIMEOUT_SECONDS: Final = 20
"""Long enough that another caller is seen to wait behind, also on a busy machine."""
EXPRESS_TIMEOUT_SECONDS: Final = 3
EXPRESS_LEASE_SECONDS: Final = 4
GATE_TIMEOUT_SECONDS: Final = 300
"""A handler at a gate stands there until a test opens it, which a busy machine may delay."""


class DyingWorkflows(Forms):
    """Over the service of `Fairlock`, whose reaper gets the events of all machines."""

    waiting = Waiting.queue()

    def forms(self) -> Sequence[Form]:
        self.gates = gates(self, self.locks)
        return (
            Dies(self, "Dies"),
            DiesKeptAlive(self, "DiesKeptAlive"),
            Dies(self, "DiesByTimeout", timeout_seconds=TIMEOUT_SECONDS),
            DiesByError(self, "DiesByError"),
            DiesWithTask(self, "DiesWithTask"),
            DiesAtGate(self, "DiesAtGate"),
            DiesNested(self, "DiesNested"),
            KeptAliveUntold(self, "KeptAliveUntold"),
            Express(self, "ExpressByTimeout", timeout_seconds=EXPRESS_TIMEOUT_SECONDS),
            ExpressByError(self, "ExpressByError"),
        )


class Unreaped(Forms):
    """Over a service of its own: of all machines but two no event reaches it, as if all were lost.

    It gets the events of those two, but its orders of second passes go to a queue that no function
    reads.
    """

    waiting = Lifetimes.waiting

    def forms(self) -> Sequence[Form]:
        service = LockService(self, "Locks", lifecycle_events=True)
        assert service.reaper is not None
        elsewhere = sqs.Queue(self, "Elsewhere")
        elsewhere.grant_send_messages(service.reaper.function)
        service.reaper.function.add_environment(REAP_QUEUE_VARIABLE, elsewhere.queue_url)
        self.locks = service
        self.gates = gates(self, service)
        service.add_outputs()
        watched, watched_nested = Dies(self, "Watched"), DiesNested(self, "WatchedNested")
        service.watch(watched.machine, watched_nested.machine)
        return (
            watched,
            watched_nested,
            Plain(self, "UnreapedPlain"),
            Dies(self, "Unreaped"),
            Dies(self, "UnreapedByTimeout", timeout_seconds=TIMEOUT_SECONDS),
            DiesByError(self, "UnreapedByError"),
            Uncaught(self, "UnreapedWithTask"),
            DiesAtGate(self, "UnreapedAtGate"),
        )


class DyingWorkflow(Lifetime):
    def guarded(self, work: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        lease = Duration.seconds(LEASE_SECONDS)
        keep_alive = Duration.seconds(LONG_INTERVAL_SECONDS) if self.keeps_alive else None
        return super().guarded(work, name, **{"lease": lease, "keep_alive": keep_alive, **props})


class Dies(DyingWorkflow, Plain):
    """While it waits or works."""


class DiesKeptAlive(Dies):
    keeps_alive = True


class DiesByError(DyingWorkflow, PlainRuntime):
    """By an error that nothing can catch."""


class DiesWithTask(DyingWorkflow):
    """Its only task takes its execution environment with it."""

    def body(self) -> sfn.IChainable:
        return self.guarded(_task_that_is_killed(self))


class Uncaught(DyingWorkflow):
    """The same in a chain without a guard, which catches nothing."""

    def body(self) -> sfn.IChainable:
        return Chain(
            self,
            "Chain",
            acquire=self.forms.locks.acquire_function,
            release=self.forms.locks.release_function,
            work=_task_that_is_killed(self),
            mistake=Mistake(),
        )


class DiesAtGate(DyingWorkflow):
    """In the middle of acquire or release."""

    forms: DyingWorkflows | Unreaped

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), service=self.forms.gates)


class DiesNested(DiesAtGate):
    """The same while it holds another lock: once that is free, the first reap pass is over."""

    def body(self) -> sfn.IChainable:
        outer = "{% 'outer/' & $states.input.lock %}"
        return self.guarded(super().body(), "Outer", lock_name=outer)


class KeptAliveUntold(DyingWorkflow):
    """Kept alive by a service whose release does not tell the heartbeat that the work is done."""

    keeps_alive = True

    def body(self) -> sfn.IChainable:
        locks = self.forms.locks
        silent = _with_handlers(self, "Silent", locks, handler="silent.release", environment={})
        service = Spoilt(
            acquire_function=locks.acquire_function,
            heartbeat_function=locks.heartbeat_function,
            release_function=silent,
        )
        interval = Duration.seconds(UNTOLD_INTERVAL_SECONDS)
        return self.guarded(stay(self), service=service, keep_alive=interval)


class Express(Lifetime):
    """An Express workflow: its end sends no event, and it cannot be described."""

    def __init__(
        self, scope: Forms, construct_id: str, *, timeout_seconds: int | None = None
    ) -> None:
        Construct.__init__(self, scope, construct_id)
        self.forms = scope
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(self.guarded(self.inside())),
            query_language=self.language,
            state_machine_type=sfn.StateMachineType.EXPRESS,
            timeout=None if timeout_seconds is None else Duration.seconds(timeout_seconds),
        )

    def inside(self) -> sfn.IChainable:
        return stay(self)

    def guarded(self, work: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        express = {
            "express": True,
            "waiting": Waiting.poll(),
            "lease": Duration.seconds(EXPRESS_LEASE_SECONDS),
            "max_wait": Duration.minutes(1),
        }
        return super().guarded(work, name, **{**express, **props})


class ExpressByError(Express):
    language = None

    def inside(self) -> sfn.IChainable:
        return runtime_error(self)


def gates(scope: Construct, locks: ILockService) -> Spoilt:
    """The service's handlers with gates in them; a test finds these in the output `Gates`."""
    stage = Stage.of(scope)
    assert stage is not None
    directory = Path(stage.outdir) / f"gates-{scope.node.id}"
    directory.mkdir()
    CfnOutput(scope, "Gates", value=str(directory))

    def gated(operation: str) -> lambda_.Function:
        return _with_handlers(
            scope,
            f"Gated{operation.title()}",
            locks,
            handler=f"gated.{operation}",
            environment={"GATES": str(directory)},
        )

    return Spoilt(
        acquire_function=gated("acquire"),
        heartbeat_function=locks.heartbeat_function,
        release_function=gated("release"),
    )


def _with_handlers(
    scope: Construct,
    construct_id: str,
    locks: ILockService,
    *,
    handler: str,
    environment: dict[str, str],
) -> lambda_.Function:
    """A function of the directory `layer`, on top of the service's own handlers."""
    assert isinstance(locks, LockService)
    layer = lambda_.LayerVersion(
        scope, f"{construct_id}Layer", code=lambda_.Code.from_asset(str(HERE / "layer"))
    )
    return lambda_.Function(
        scope,
        construct_id,
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        code=handler_code(scope),
        handler=handler,
        layers=[layer],
        timeout=Duration.seconds(GATE_TIMEOUT_SECONDS),
        environment={"FAIRLOCK_TABLE_NAME": locks.table.table_name, **environment},
    )


def _task_that_is_killed(scope: Form) -> tasks.LambdaInvoke:
    function = lambda_.Function(
        scope,
        "DyingWorkflow",
        runtime=lambda_.Runtime.PYTHON_3_13,
        architecture=lambda_.Architecture.ARM_64,
        code=lambda_.Code.from_asset(str(HERE / "worker")),
        handler="killed.handler",
        timeout=Duration.seconds(60),
    )
    return tasks.LambdaInvoke.jsonata(
        scope,
        "Work",
        lambda_function=function,
        payload=sfn.TaskInput.from_text(INPUT),
        outputs=RESULT,
        retry_on_service_exceptions=False,
    )
