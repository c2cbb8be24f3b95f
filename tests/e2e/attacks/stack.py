"""Workflows to be redriven, Maps with a guard in each iteration, and a second service beside.

The input of a Map has `items`: of each the `lock`, the `seconds` of its work, and `raise` if it is
to fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import LockService, Waiting
from tests.e2e.guard.stack import INPUT, Form, Forms
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS, Lifetime, gates
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
            EachCaught(self, "EachCaught"),
            EachOfEach(self, "EachOfEach"),
            Both(self, "Both"),
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
        return self.each("Each", self.guarded(stay(self), lease=LEASE))

    def each(self, name: str, guarded: sfn.IChainable) -> sfn.Map:
        items = sfn.ProvideItems.jsonata(ITEMS)
        return sfn.Map.jsonata(self, name, items=items).item_processor(guarded)


class EachCaught(Each):
    """The same in a workflow that goes on."""

    def body(self) -> sfn.IChainable:
        seconds = sfn.WaitTime.seconds("{% $states.input.goes_on %}")
        goes_on = sfn.Wait.jsonata(self, "GoesOn", time=seconds)
        each = self.each("Each", self.guarded(stay(self)))
        return each.add_catch(goes_on, outputs=INPUT).next(goes_on)


class EachOfEach(Each):
    """A Map in a Map; `items` are lists of items."""

    def body(self) -> sfn.IChainable:
        return self.each("Outer", super().body())


class Both(Lifetime):
    """A Parallel, both of whose branches wait and work."""

    def body(self) -> sfn.IChainable:
        branches = [
            self.guarded(stay(self, f"Stay{name}"), f"Guard{name}", lease=LEASE) for name in "AB"
        ]
        return sfn.Parallel.jsonata(self, "Both").branch(*branches)


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
    lease = LEASE

    def body(self) -> sfn.IChainable:
        each = sfn.DistributedMap.jsonata(
            self,
            "Each",
            label="Each",
            items=sfn.ProvideItems.jsonata(ITEMS),
            tolerated_failure_count=self.tolerated,
        )
        return each.item_processor(self.guarded(stay(self), lease=self.lease))


class EachChildTolerated(EachChild):
    """The same; one item may fail."""

    tolerated = 1


class EachChildUntold(EachChild):
    """The same as the first, with a lease that ends in the test."""

    lease = Duration.seconds(PLAIN_LEASE_SECONDS)


class Impatient(Lifetime):
    """Gives up waiting after a while."""

    def body(self) -> sfn.IChainable:
        return self.guarded(stay(self), max_wait=Duration.seconds(MAX_WAIT_SECONDS))


class SecondService(Forms):
    """A service over the table of another, as dev and prod never should be but may be."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        first = self.locks
        assert isinstance(first, LockService)
        self.locks = LockService(self, "Locks", table=first.table)
        self.locks.add_outputs()
        self.locks.share()
        return (Stays(self, "Second"),)


class Untold(Forms):
    """A service of its own without a reaper, as if no child execution sent a status event."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        service = LockService(self, "Locks", reaper=False)
        service.add_outputs()
        self.locks = service
        return (EachChildUntold(self, "EachChildUntold"),)
