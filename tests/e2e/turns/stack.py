"""Workflows that share a lock, hold two, supersede each other or take turns at a pace."""

from __future__ import annotations

from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, Pace, Waiting
from tests.e2e.guard.stack import Form, Forms, Props, flat

BOTH: Final = ["{% $states.input.one %}", "{% $states.input.other %}"]
GIVES_UP_SECONDS: Final = 25
"""Long enough that the first of two locks is granted, also on a busy machine."""
FALLBACK_SECONDS: Final = 10


class TurnForms(Forms):
    """Guards that sleep in the queue, but for one that polls."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def declare(self) -> None:
        version: Props = {"only_newest": "{% $states.input.version %}"}
        self.add("NewestQueue", newest, **version)
        self.add("NewestPoll", newest, **version, waiting=Waiting.poll())
        self.add("NewestByTime", newest, only_newest=True)
        self.add("NewestFails", newest_or_fail, **version)
        self.add("TurnReads", reads)
        both: Props = {"lock_name": BOTH}
        self.add("TurnBoth", flat, **both)
        self.add("TurnBothFails", flat, **both, max_wait=Duration.seconds(GIVES_UP_SECONDS))


def reads(form: Form) -> sfn.IChainable:
    """A reader, or a writer if the input says so."""
    write = form.guard(form.work("Write"), "Writer")
    read = form.guard(form.work("Read"), "Reader", shared=True)
    choice = sfn.Choice.jsonata(form, "Writes?")
    choice.when(sfn.Condition.jsonata("{% $states.input.writes %}"), write)
    return choice.otherwise(read)


def newest_or_fail(form: Form, **props: Any) -> LockGuard:  # noqa: ANN401 - a guard's
    """Only the newest of those that wait runs."""
    work = sfn.Pass.jsonata(form, "Work", outputs="ran")
    return form.guard(work, max_wait=Duration.minutes(20), **props)


def newest(form: Form) -> sfn.IChainable:
    """The others go another way."""
    superseded = sfn.Pass.jsonata(form, "Superseded", outputs="superseded")
    return newest_or_fail(form, on_superseded=superseded)


def paced(form: Form, **props: Any) -> Pace:  # noqa: ANN401 - a Pace's
    """Takes turns at the input's `pace`."""
    arguments: Props = {"pace_name": "{% $states.input.pace %}", "service": form.forms.locks}
    return Pace(form, "Pace", **arguments, **props)


def paced_or_skipped(form: Form, **props: Any) -> sfn.IChainable:  # noqa: ANN401 - same
    """Goes another way if its slot is too late."""
    skipped = sfn.Pass.jsonata(form, "Skipped", outputs="skipped")
    ran = sfn.Pass.jsonata(form, "Ran", outputs="ran")
    return paced(form, on_too_late=skipped, **props).next(ran)
