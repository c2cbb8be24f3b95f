"""Workflows that share a lock, hold two, supersede each other or take turns at a pace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, LockService, Pace, Waiting
from tests.e2e.guard.stack import Form, Forms, Props
from tests.e2e.workflow_parts import INPUT, LOCK

BOTH = ["{% $states.input.one %}", "{% $states.input.other %}"]
GIVES_UP_SECONDS = 8
FALLBACK_SECONDS: Final = 10
INTERVAL_SECONDS: Final = 1


class TurnForms(Forms):
    """Guards that sleep in the queue, but for one that polls."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        version: Props = {"only_newest": "{% $states.input.version %}"}
        return (
            Newest(self, "NewestQueue", **version),
            Newest(self, "NewestPoll", **version, waiting=Waiting.poll()),
            Newest(self, "NewestByTime", only_newest=True),
            NewestFails(self, "NewestFails", **version),
            Reads(self, "TurnReads"),
            Both(self, "TurnBoth"),
            Both(self, "TurnBothFails", max_wait=Duration.seconds(GIVES_UP_SECONDS)),
        )


class Reads(Form):
    """A reader, or a writer if the input says so."""

    def body(self) -> sfn.IChainable:
        write = self.guard(self.work("Write"), "Writer", lock_name=LOCK)
        read = self.guard(self.work("Read"), "Reader", lock_name=LOCK, shared=True)
        choice = sfn.Choice.jsonata(self, "Writes?")
        choice.when(sfn.Condition.jsonata("{% $states.input.writes %}"), write)
        return choice.otherwise(read)


class Both(Form):
    """Two locks, which the input names in any order."""

    def body(self) -> sfn.IChainable:
        return self.guard(self.work(), lock_name=BOTH)


class NewestFails(Form):
    """Only the newest of those that wait runs."""

    def body(self) -> sfn.IChainable:
        return self.newest()

    def newest(self, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
        work = sfn.Pass.jsonata(self, "Work", outputs="ran")
        return self.guard(work, lock_name=LOCK, max_wait=Duration.minutes(20), **props)


class Newest(NewestFails):
    """The others go another way."""

    def body(self) -> sfn.IChainable:
        superseded = sfn.Pass.jsonata(self, "Superseded", outputs="superseded")
        return self.newest(on_superseded=superseded)


class OtherService(Forms):
    """A service of its own: with a function for paces, with lifecycle events, without a reaper."""

    waiting = TurnForms.waiting

    def forms(self) -> Sequence[Form]:
        self.locks = LockService(self, "Locks", pace=True, lifecycle_events=True, reaper=False)
        self.locks.add_outputs()
        hourly: Props = {"rate": (1, Duration.hours(1)), "max_wait": Duration.seconds(0)}
        return (
            Paced(self, "PaceEach"),
            PacedOrSkipped(self, "PaceHourly", **hourly),
            Paced(self, "PaceFails", **hourly),
            PacedInMap(self, "PaceInMap"),
        )


class Paced(Form):
    """Takes turns at the input's `pace`, one each INTERVAL_SECONDS."""

    def body(self) -> sfn.IChainable:
        return self.paced()

    def paced(self, **props: Any) -> Pace:  # noqa: ANN401 - a Pace's
        one_a_second = (60 // INTERVAL_SECONDS, Duration.minutes(1))
        arguments: Props = {"pace_name": "{% $states.input.pace %}", "rate": one_a_second}
        return Pace(
            self, "Pace", **{**arguments, "service": self.forms.locks, **props, **self.terms}
        )


class PacedOrSkipped(Paced):
    """Goes another way if its slot is too late."""

    def body(self) -> sfn.IChainable:
        skipped = sfn.Pass.jsonata(self, "Skipped", outputs="skipped")
        paced = self.paced(on_too_late=skipped)
        return paced.next(sfn.Pass.jsonata(self, "Ran", outputs="ran"))


class PacedInMap(Paced):
    """Each iteration has a slot of its own."""

    def body(self) -> sfn.IChainable:
        items = sfn.ProvideItems.jsonata(INPUT)
        return sfn.Map.jsonata(self, "Items", items=items).item_processor(self.paced())
