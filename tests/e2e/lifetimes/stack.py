"""Workflows that end in all the ways in which a workflow can, with keep_alive and without.

Their input names the `lock`, and how many `seconds` the work takes; with `raise` it fails at the
end. Those of `DyingWorkflows` have leases so long that no lease frees anything in a test. The same
stand over the service of `Fairlock`, and over one by which deaths go unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stage
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, Waiting
from fairlock.cdk.service.functions import handler_code
from tests.e2e.guard.stack import JSONATA, Form, Forms, Spoilt
from tests.e2e.workflow_parts import INPUT, LOCK, SECONDS, runtime_error, stay

PLAIN_LEASE_SECONDS: Final = 5
KEEP_ALIVE_LEASE_SECONDS: Final = 6
INTERVAL_SECONDS: Final = 2
FALLBACK_SECONDS: Final = 10
LONG_LEASE_SECONDS: Final = 600
LONG_INTERVAL_SECONDS: Final = 20
TIMEOUT_SECONDS: Final = 20
"""Long enough that another caller is seen to wait behind, also on a busy machine."""
EXPRESS_TIMEOUT_SECONDS: Final = 3
EXPRESS_LEASE_SECONDS: Final = 4
GATE_TIMEOUT_SECONDS: Final = 300
"""A handler at a gate stands there until a test opens it, which a busy machine may delay."""
LIMIT: Final = "{% $exists($states.input.limit) ? $states.input.limit : 1 %}"
LAYER: Final = Path(__file__).parent / "layer"


class Lifetimes(Forms):
    """Over the service of `Fairlock`, which has a reaper."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        return (
            KeepAliveChain(self, "KeepAliveChain"),
            KeepAliveSibling(self, "KeepAliveSibling"),
            Plain(self, "Plain"),
            PlainTask(self, "PlainTask"),
            PlainSibling(self, "PlainSibling"),
        )


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
            Express(self, "ExpressByTimeout", timeout_seconds=EXPRESS_TIMEOUT_SECONDS),
            ExpressByError(self, "ExpressByError"),
        )


class Unreaped(Forms):
    """Over a service of its own: no event reaches it but those of one machine."""

    waiting = Lifetimes.waiting

    def forms(self) -> Sequence[Form]:
        self.locks = service = LockService(self, "Locks")
        service.add_outputs()
        watched = Dies(self, "Watched")
        service.watch(watched.machine)
        return watched, Plain(self, "UnreapedPlain"), Dies(self, "Unreaped")


class Lifetime(Form):
    """Guards that differ in keep_alive only."""

    language: sfn.QueryLanguage | None = JSONATA
    keeps_alive = False

    def guarded(self, work: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        lease_seconds = KEEP_ALIVE_LEASE_SECONDS if self.keeps_alive else PLAIN_LEASE_SECONDS
        terms = {
            "lock_name": LOCK,
            "limit": LIMIT,
            "lease": Duration.seconds(lease_seconds),
            "max_wait": Duration.minutes(5),
            "keep_alive": Duration.seconds(INTERVAL_SECONDS) if self.keeps_alive else None,
        }
        return self.guard(work, name, **{**terms, **props})


class Plain(Lifetime):
    """A chain that waits, without a function."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self))


class KeepAliveChain(Plain):
    keeps_alive = True


class PlainTask(Lifetime):
    """A bare task: the function that does as its input says."""

    def body(self) -> sfn.IChainable:
        return self.guarded(self.work())


class PlainSibling(Lifetime):
    """A branch beside the guard fails after a second; the workflow catches it and goes on."""

    def body(self) -> sfn.IChainable:
        second = sfn.WaitTime.duration(Duration.seconds(1))
        fail = sfn.Fail.jsonata(self, "SiblingFails", error="Sibling", cause="on purpose")
        both = sfn.Parallel.jsonata(self, "Both")
        both.branch(self.guarded(stay(self)))
        both.branch(sfn.Wait.jsonata(self, "SiblingWaits", time=second).next(fail))
        goes_on = sfn.Wait.jsonata(self, "GoesOn", time=sfn.WaitTime.seconds(SECONDS))
        return both.add_catch(goes_on, outputs=INPUT)


class KeepAliveSibling(PlainSibling):
    keeps_alive = True


class PlainRuntime(Lifetime):
    """After its `seconds` the chain meets an error that nothing can catch."""

    language = None

    def body(self) -> sfn.IChainable:
        return self.guarded(runtime_error(self))


class DyingWorkflow(Lifetime):
    def guarded(self, work: sfn.IChainable, name: str = "Guard", **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        lease = Duration.seconds(LONG_LEASE_SECONDS)
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
        return self.guarded(self.work())


class DiesAtGate(DyingWorkflow):
    """In the middle of acquire or release."""

    forms: DyingWorkflows

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), service=self.forms.gates)


class DiesNested(DiesAtGate):
    """The same while it holds another lock: once that is free, the first reap pass is over."""

    def body(self) -> sfn.IChainable:
        outer = "{% 'outer/' & $states.input.lock %}"
        return self.guarded(super().body(), "Outer", lock_name=outer)


class Express(Lifetime):
    """An Express workflow: its end sends no event, and it cannot be described."""

    kind = sfn.StateMachineType.EXPRESS

    def body(self) -> sfn.IChainable:
        return self.guarded(
            self.inside(),
            express=True,
            waiting=Waiting.poll(),
            lease=Duration.seconds(EXPRESS_LEASE_SECONDS),
            max_wait=Duration.minutes(1),
        )

    def inside(self) -> sfn.IChainable:
        return stay(self)


class ExpressByError(Express):
    language = None

    def inside(self) -> sfn.IChainable:
        return runtime_error(self)


def gates(scope: Construct, locks: ILockService) -> Spoilt:
    """The service's handlers with gates in them; a test finds these in the output `Gates`."""
    assert isinstance(locks, LockService)
    stage = Stage.of(scope)
    assert stage is not None
    directory = Path(stage.outdir) / f"gates-{scope.node.id}"
    directory.mkdir()
    CfnOutput(scope, "Gates", value=str(directory))
    environment = {"FAIRLOCK_TABLE_NAME": locks.table.table_name, "GATES": str(directory)}
    layer = lambda_.LayerVersion(scope, "Gated", code=lambda_.Code.from_asset(str(LAYER)))
    acquire, release = (
        lambda_.Function(
            scope,
            f"Gated{operation.title()}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            code=handler_code(scope),
            handler=f"gated.{operation}",
            layers=[layer],
            timeout=Duration.seconds(GATE_TIMEOUT_SECONDS),
            environment=environment,
        )
        for operation in ("acquire", "release")
    )
    return Spoilt(acquire, locks.heartbeat_function, release)
