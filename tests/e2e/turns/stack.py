"""Workflows that share a lock, and workflows that hold two."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import Waiting
from tests.e2e.guard.stack import INPUT, Form, Forms

BOTH = ["{% $states.input.one %}", "{% $states.input.other %}"]
GIVES_UP_SECONDS = 8
KEEP_ALIVE = Duration.seconds(2)


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
