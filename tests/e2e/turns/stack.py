"""Workflows that share a lock, hold two, supersede each other or take turns at a pace.

Among them the guards of docs/turns.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import LockGuard, LockService, Pace, Waiting
from tests.e2e.guard.stack import INPUT, LEASE_SECONDS, Form, Forms, Props
from tests.e2e.workflow_parts import LOCK, stay
from tests.support.checkout import Block, blocks

BOTH = ["{% $states.input.one %}", "{% $states.input.other %}"]
GIVES_UP_SECONDS = 8
MAX_HOLD_SECONDS = 3
KEEP_ALIVE = Duration.seconds(2)
FALLBACK_SECONDS: Final = 10
INTERVAL_SECONDS: Final = int(os.environ.get("PACE_INTERVAL", "1"))


def example(word: str) -> Block:
    """The one Python block of docs/turns.md that contains a word."""
    of_the_page = (block for block in blocks("python") if block.document == "docs/turns.md")
    [found] = [block for block in of_the_page if word in block.code]
    return found


def run_example(block: Block, **names: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever it uses
    """Runs a block among these names, and returns all names afterwards."""
    exec(compile(block.code, str(block), "exec"), names)  # noqa: S102 - the repository's own example
    return names


class TurnForms(Forms):
    """Guards that sleep in the queue, but for two that poll."""

    waiting = Waiting.queue(fallback=Duration.seconds(FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        version: Props = {"only_newest": "{% $states.input.version %}"}
        polls: Props = {"waiting": Waiting.poll()}
        gives_up: Props = {"max_wait": Duration.seconds(GIVES_UP_SECONDS)}
        kept_alive: Props = {"lease": Duration.seconds(6), "keep_alive": KEEP_ALIVE}
        return (
            Newest(self, "NewestQueue", **version),
            Newest(self, "NewestPoll", **version, **polls),
            Newest(self, "NewestByTime", only_newest=True),
            NewestFails(self, "NewestFails", **version),
            Reads(self, "TurnReads"),
            Both(self, "TurnBoth"),
            Both(self, "TurnBothPolls", **polls),
            BothGivesUp(self, "TurnBothGivesUp", **gives_up),
            Both(self, "TurnBothFails", **gives_up),
            Both(self, "TurnBothKeptAlive", **kept_alive),
            Transfer(self, "TransferExample"),
            Deploy(self, "DeployExample"),
            NightlyImport(self, "NightlyImportExample"),
        )


class Reads(Form):
    """A reader, or a writer if the input says so."""

    def body(self) -> sfn.IChainable:
        lock_name = "{% $states.input.lock %}"
        write = self.guard(self.work("Write"), "Writer", lock_name=lock_name)
        read = self.guard(self.work("Read"), "Reader", lock_name=lock_name, shared=True)
        choice = sfn.Choice.jsonata(self, "Writes?")
        choice.when(sfn.Condition.jsonata("{% $states.input.writes %}"), write)
        return choice.otherwise(read)


class Both(Form):
    """Two locks, which the input names in any order."""

    def body(self) -> sfn.IChainable:
        return self.guard(self.work(), lock_name=BOTH)


class BothGivesUp(Form):
    """Goes another way after some seconds."""

    def body(self) -> sfn.IChainable:
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        return self.guard(self.work(), lock_name=BOTH, on_timeout=later)


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


class _Example(Form):
    """A guard as docs/turns.md shows it, around the function that does as its input says."""

    def made(self, word: str, **names: Any) -> dict[str, Any]:  # noqa: ANN401 - what the example uses
        made = {"LockGuard": LockGuard, "Duration": Duration, "sfn": sfn, **names}
        return run_example(example(word), self=self, locks=self.forms.locks, **made)


class Transfer(_Example):
    """Both accounts of a transfer."""

    def body(self) -> sfn.IChainable:
        guard: LockGuard = self.made('"Transfer"', charge=self.work())["guard"]
        return guard


class Deploy(_Example):
    """Only the newest of the deployments that wait."""

    def body(self) -> sfn.IChainable:
        guard: LockGuard = self.made('"ANewerBuildRuns"', deploy=self.work())["deploy_guard"]
        return guard


class NightlyImport(_Example):
    """A task whose time-out ends it in time; the ten minutes of the page are some seconds here."""

    def body(self) -> sfn.IChainable:
        shorter = SimpleNamespace(minutes=lambda _: Duration.seconds(MAX_HOLD_SECONDS))
        names = {"tasks": tasks, "function": self.forms.worker, "Duration": shorter}
        guard: LockGuard = self.made('"NightlyImport"', **names)["import_guard"]
        return guard


class OtherService(Forms):
    """A service of its own: with a function for paces, with lifecycle events, without a reaper."""

    waiting = TurnForms.waiting

    def forms(self) -> Sequence[Form]:
        self.locks = LockService(self, "Locks", pace=True, lifecycle_events=True, reaper=False)
        self.locks.add_outputs()
        hourly: Props = {"rate": (1, Duration.hours(1)), "max_wait": Duration.seconds(0)}
        return (
            Untold(self, "Untold"),
            Paced(self, "PaceEach"),
            PacedByPath(self, "PacePath"),
            PacedOrSkipped(self, "PaceHourly", **hourly),
            Paced(self, "PaceFails", **hourly),
            PacedInMap(self, "PaceInMap"),
            PaceExample(self, "PaceExample"),
        )


class Untold(Form):
    """Stays in a lock with a short lease; no event tells of its end."""

    def body(self) -> sfn.IChainable:
        return self.guard(stay(self), lock_name=LOCK, lease=Duration.seconds(LEASE_SECONDS))


class Paced(Form):
    """Takes turns at the input's `pace`, one each INTERVAL_SECONDS."""

    def body(self) -> sfn.IChainable:
        return self.paced()

    def paced(self, **props: Any) -> Pace:  # noqa: ANN401 - a Pace's
        one_a_second = (60 // INTERVAL_SECONDS, Duration.minutes(1))
        arguments: Props = {"pace_name": "{% $states.input.pace %}", "rate": one_a_second}
        arguments |= {"service": self.forms.locks, **props, **self.terms}
        return Pace(self, "Pace", **arguments)


class PacedByPath(Paced):
    """In a JSONPath machine."""

    language = sfn.QueryLanguage.JSON_PATH

    def body(self) -> sfn.IChainable:
        return self.paced(pace_name=sfn.JsonPath.string_at("$.pace"))


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


class PaceExample(Form):
    """A pace as docs/turns.md shows it."""

    def body(self) -> sfn.IChainable:
        names = {"locks": self.forms.locks, "Pace": Pace, "Duration": Duration}
        charge = sfn.Pass.jsonata(self, "Charge")
        made = run_example(example("pace = Pace("), self=self, charge=charge, **names)
        definition: sfn.IChainable = made["definition"]
        return definition
