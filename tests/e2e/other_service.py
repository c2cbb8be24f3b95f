"""A second lock service beside `Fairlock`, with what that one does not have."""

from __future__ import annotations

from functools import partial
from typing import Final

from aws_cdk import Duration

from fairlock.cdk import LockService
from tests.e2e.guard.stack import Forms, Props
from tests.e2e.lifetimes.stack import LONG, PLAIN, Lifetimes, stays
from tests.e2e.turns.stack import paced, paced_or_skipped
from tests.e2e.workflow_parts import once_each

INTERVAL_SECONDS: Final = 3
"""Of a pace. Longer than a workflow is late: AWS's time and Wait states are exact to a second."""


class OtherService(Forms):
    """It has paces, and its reaper hears of one machine only."""

    waiting = Lifetimes.waiting

    def declare(self) -> None:
        self.locks = service = LockService(self, "Locks", pace=True)
        service.add_outputs()
        service.watch(self.add("Watched", stays, **LONG))
        self.add("Unreaped", stays, **LONG)
        self.add("UnreapedPlain", stays, **PLAIN)
        each: Props = {"rate": (60 // INTERVAL_SECONDS, Duration.minutes(1))}
        hourly: Props = {"rate": (1, Duration.hours(1)), "max_wait": Duration.seconds(0)}
        self.add("PaceEach", partial(paced, **each))
        self.add("PaceHourly", partial(paced_or_skipped, **hourly))
        self.add("PaceFails", partial(paced, **hourly))
        self.add("PaceInMap", lambda form: once_each(form, paced(form, **each)))
