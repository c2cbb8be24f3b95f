"""Workflows that share a lock, workflows that hold two, and the guards of docs/turns.md."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import LockGuard, Waiting
from tests.e2e.guard.stack import INPUT, Form, Forms
from tests.support.documents import Block, blocks

BOTH = ["{% $states.input.one %}", "{% $states.input.other %}"]
GIVES_UP_SECONDS = 8
MAX_HOLD_SECONDS = 3
KEEP_ALIVE = Duration.seconds(2)


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
    """Guards that sleep in the queue, but for one that polls."""

    waiting = Waiting.queue(fallback=Duration.seconds(10))

    def forms(self) -> Sequence[Form]:
        return (
            Reads(self, "TurnReads"),
            Both(self, "TurnBoth"),
            BothPolls(self, "TurnBothPolls"),
            BothGivesUp(self, "TurnBothGivesUp"),
            BothFails(self, "TurnBothFails"),
            BothKeptAlive(self, "TurnBothKeptAlive"),
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


class BothPolls(Form):
    """The same by polling."""

    def body(self) -> sfn.IChainable:
        return self.guard(self.work(), lock_name=BOTH, waiting=Waiting.poll())


class BothGivesUp(Form):
    """Goes another way after some seconds."""

    def body(self) -> sfn.IChainable:
        later = sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT})
        max_wait = Duration.seconds(GIVES_UP_SECONDS)
        return self.guard(self.work(), lock_name=BOTH, max_wait=max_wait, on_timeout=later)


class BothFails(Form):
    """Fails after some seconds."""

    def body(self) -> sfn.IChainable:
        max_wait = Duration.seconds(GIVES_UP_SECONDS)
        return self.guard(self.work(), lock_name=BOTH, max_wait=max_wait)


class BothKeptAlive(Form):
    """Renews both leases."""

    def body(self) -> sfn.IChainable:
        lease = Duration.seconds(6)
        return self.guard(self.work(), lock_name=BOTH, lease=lease, keep_alive=KEEP_ALIVE)


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
