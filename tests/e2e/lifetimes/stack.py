"""Workflows that end in all the ways in which a workflow can, with keep_alive and without.

Their input names the `lock`, and how many `seconds` the work takes; with `raise` it fails at the
end. The leases of those that die are so long that no lease frees anything in a test.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stage
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockService, Waiting
from fairlock.cdk.service.functions import handler_code
from tests.e2e.guard.stack import EXPRESS, Form, Forms, Props, Spoilt, flat
from tests.e2e.workflow_parts import INPUT, LOCK, SECONDS, stay

PLAIN_LEASE_SECONDS: Final = 5
INTERVAL_SECONDS: Final = 2
FALLBACK_SECONDS: Final = 10
LONG_LEASE_SECONDS: Final = 600
LONG_INTERVAL_SECONDS: Final = 20
MAX_WAIT_SECONDS: Final = 20
TIMEOUT_SECONDS: Final = 20
"""Long enough that another caller is seen to wait behind, also on a busy machine."""
EXPRESS_TIMEOUT_SECONDS: Final = 3
EXPRESS_LEASE_SECONDS: Final = 4
GATE_TIMEOUT_SECONDS: Final = 300
"""A handler at a gate stands there until a test opens it, which a busy machine may delay."""
ITEMS: Final = "{% $states.input.items %}"
LAYER: Final = Path(__file__).parent / "layer"


def terms(lease_seconds: int, *, interval_seconds: int | None = None, **more: Any) -> Props:  # noqa: ANN401 - a guard's
    """Of guards that differ in lease and keep_alive only."""
    return {
        "lease": Duration.seconds(lease_seconds),
        "max_wait": Duration.minutes(5),
        "keep_alive": Duration.seconds(interval_seconds) if interval_seconds else None,
        **more,
    }


def ends_after(seconds: int) -> Props:
    """Of a machine whose executions time out."""
    return {"timeout": Duration.seconds(seconds)}


PLAIN: Final = terms(PLAIN_LEASE_SECONDS)
KEPT_ALIVE: Final = terms(6, interval_seconds=INTERVAL_SECONDS)
LONG: Final = terms(LONG_LEASE_SECONDS)
LONG_KEPT_ALIVE: Final = terms(LONG_LEASE_SECONDS, interval_seconds=LONG_INTERVAL_SECONDS)


class Lifetimes(Forms):
    """Over the service of `Fairlock`, which has a reaper."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def declare(self) -> None:
        self.add("KeepAliveChain", stays, **KEPT_ALIVE)
        self.add("KeepAliveSibling", sibling_fails, **KEPT_ALIVE)
        self.add("Plain", stays, **PLAIN)
        self.add("PlainTask", flat, **PLAIN)
        self.add("PlainSibling", sibling_fails, **PLAIN)


class DyingWorkflows(Forms):
    """Over the service of `Fairlock`, whose reaper gets the events of all machines."""

    def declare(self) -> None:
        gated: Props = {**LONG, "service": self._gates()}
        self.add("Stays", stays, **LONG)
        self.add("StaysPolling", stays, **{**LONG, "waiting": Waiting.poll()})
        self.add("StaysKeptAlive", stays, **LONG_KEPT_ALIVE)
        self.add("StaysAtGate", stays, **gated)
        self.add("StaysInTwo", stays_in_two, **gated)
        self.add("TimesOut", stays, machine=ends_after(TIMEOUT_SECONDS), **LONG)
        self.add("MeetsError", meets_error, language=None, **LONG)
        self.add("WorksLong", flat, **LONG)
        self.add("Impatient", stays, **{**LONG, "max_wait": Duration.seconds(MAX_WAIT_SECONDS)})
        self.add("Each", in_each, **LONG)
        self.add("EachChild", in_each_child, **LONG)
        self.add("EachChildTolerated", partial(in_each_child, tolerated=1), **LONG)
        express = {
            **terms(EXPRESS_LEASE_SECONDS, express=True, waiting=Waiting.poll()),
            "max_wait": Duration.minutes(1),
        }
        soon = {**EXPRESS, **ends_after(EXPRESS_TIMEOUT_SECONDS)}
        self.add("ExpressByTimeout", stays, machine=soon, **express)
        self.add("ExpressByError", meets_error, language=None, machine=EXPRESS, **express)

    def _gates(self) -> Spoilt:
        """The service's handlers with gates in them; a test finds these in the output `Gates`."""
        assert isinstance(self.locks, LockService)
        stage = Stage.of(self)
        assert stage is not None
        directory = Path(stage.outdir) / "gates"
        directory.mkdir()
        CfnOutput(self, "Gates", value=str(directory))
        layer = lambda_.LayerVersion(self, "Gated", code=lambda_.Code.from_asset(str(LAYER)))
        acquire, release = (
            lambda_.Function(
                self,
                f"Gated{operation.title()}",
                runtime=lambda_.Runtime.PYTHON_3_13,
                architecture=lambda_.Architecture.ARM_64,
                code=handler_code(self),
                handler=f"gated.{operation}",
                layers=[layer],
                timeout=Duration.seconds(GATE_TIMEOUT_SECONDS),
                environment={
                    "FAIRLOCK_TABLE_NAME": self.locks.table.table_name,
                    "GATES": str(directory),
                },
            )
            for operation in ("acquire", "release")
        )
        return Spoilt(acquire, self.locks.heartbeat_function, release)


def stays(form: Form) -> sfn.IChainable:
    """A chain that waits, without a function."""
    return form.guard(stay(form))


def sibling_fails(form: Form) -> sfn.IChainable:
    """A branch beside the guard fails after a second; the workflow catches it and goes on."""
    second = sfn.WaitTime.duration(Duration.seconds(1))
    fail = sfn.Fail.jsonata(form, "SiblingFails", error="Sibling", cause="on purpose")
    both = sfn.Parallel.jsonata(form, "Both")
    both.branch(form.guard(stay(form)))
    both.branch(sfn.Wait.jsonata(form, "SiblingWaits", time=second).next(fail))
    goes_on = sfn.Wait.jsonata(form, "GoesOn", time=sfn.WaitTime.seconds(SECONDS))
    return both.add_catch(goes_on, outputs=INPUT)


def meets_error(form: Form) -> sfn.IChainable:
    """After its `seconds` by a JSONPath that leads nowhere, which nothing can catch."""
    wait = sfn.Wait(form, "Stay", time=sfn.WaitTime.seconds_path("$.seconds"))
    return form.guard(wait.next(sfn.Pass(form, "Nowhere", input_path="$.nowhere")))


def stays_in_two(form: Form) -> sfn.IChainable:
    """While it holds another lock: once that is free, the first reap pass is over."""
    inner = form.guard(stay(form), lock_name=LOCK)
    return form.guard(inner, "Outer", lock_name="{% 'outer/' & $states.input.lock %}")


# The input of a Map has `items`: of each the `lock`, the `seconds` of its work, and `raise` if it
# is to fail.


def in_each(form: Form) -> sfn.IChainable:
    """A Map whose iterations wait, work and fail; nothing catches that."""
    each = sfn.Map.jsonata(form, "Each", items=sfn.ProvideItems.jsonata(ITEMS))
    return each.item_processor(form.guard(stay(form)))


def in_each_child(form: Form, *, tolerated: int | None = None) -> sfn.IChainable:
    """A distributed Map: each item in an execution of its own."""
    each = sfn.DistributedMap.jsonata(
        form,
        "Each",
        label="Each",
        items=sfn.ProvideItems.jsonata(ITEMS),
        tolerated_failure_count=tolerated,
    )
    return each.item_processor(form.guard(stay(form)))
