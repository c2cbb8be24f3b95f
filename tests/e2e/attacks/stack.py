"""Workflows to be redriven, and Maps with a guard in each iteration.

The input of a Map has `items`: of each the `lock`, the `seconds` of its work, and `raise` if it is
to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import Waiting
from tests.e2e.guard.stack import Form, Forms
from tests.e2e.lifetimes.stack import Lifetime, gates
from tests.e2e.workflow_parts import stay

FALLBACK_SECONDS: Final = 10
MAX_WAIT_SECONDS: Final = 20
LEASE: Final = Duration.minutes(10)
ITEMS: Final = "{% $states.input.items %}"


class Attacks(Forms):
    """Over the service of `Fairlock`."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        self.gates = gates(self, self.locks)
        return (
            Stays(self, "Stays"),
            StaysPolling(self, "StaysPolling"),
            AtGate(self, "AtGate"),
            Each(self, "Each"),
            Nests(self, "Nests"),
            EachChild(self, "EachChild"),
            EachChildTolerated(self, "EachChildTolerated"),
            Impatient(self, "Impatient"),
        )


class Stays(Lifetime):
    """Waits in the queue, and works, with a lease that outlasts the test."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), lease=LEASE)


class StaysPolling(Lifetime):
    """The same with a guard that polls."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), lease=LEASE, waiting=Waiting.poll())


class AtGate(Lifetime):
    """The same with handlers that a test stops between two requests."""

    forms: Attacks

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), lease=LEASE, service=self.forms.gates)


class Each(Lifetime):
    """A Map whose iterations wait, work and fail; nothing catches that."""

    def body(self) -> sfn.IChainable:
        each = sfn.Map.jsonata(self, "Each", items=sfn.ProvideItems.jsonata(ITEMS))
        return each.item_processor(self.guarded(stay(self), lease=LEASE))


class Nests(Lifetime):
    """A guard around startExecution.sync:2 of a machine whose guard wants the lock `inner`."""

    def body(self) -> sfn.IChainable:
        stays = self.forms.node.find_child("Stays")
        assert isinstance(stays, Stays)
        inside = {"lock": "{% $states.input.inner %}", "seconds": "{% $states.input.seconds %}"}
        start = tasks.StepFunctionsStartExecution.jsonata(
            self,
            "Start",
            state_machine=stays.machine,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            input=sfn.TaskInput.from_object(inside),
        )
        return self.guarded(start, lease=LEASE)


class EachChild(Lifetime):
    """A distributed Map: each item in an execution of its own. It tolerates no failure."""

    tolerated: int | None = None

    def body(self) -> sfn.IChainable:
        each = sfn.DistributedMap.jsonata(
            self,
            "Each",
            label="Each",
            items=sfn.ProvideItems.jsonata(ITEMS),
            tolerated_failure_count=self.tolerated,
        )
        return each.item_processor(self.guarded(stay(self), lease=LEASE))


class EachChildTolerated(EachChild):
    """The same; one item may fail."""

    tolerated = 1


class Impatient(Lifetime):
    """Gives up waiting after a while."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), max_wait=Duration.seconds(MAX_WAIT_SECONDS))
