"""Guards that no suite of tests/e2e has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from fairlock.cdk import Waiting
from tests.e2e.guard.stack import JSONATA, Form, Forms
from tests.e2e.lifetimes.stack import Lifetime
from tests.e2e.workflow_parts import INPUT, LOCK, stay

TASK_SECONDS: Final = 2


class GuardCases(Forms):
    """One state machine a case."""

    waiting = Waiting.queue()

    def forms(self) -> Sequence[Form]:
        return (
            FiveInside(self, "FiveInside"),
            TaskTimesOut(self, "TaskTimesOut"),
            KeptAliveTaskTimesOut(self, "KeptAliveTaskTimesOut"),
            ParallelInside(self, "ParallelInside"),
        )


class FiveInside(Form):
    """A semaphore with five permits, and a lock as the input says."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(stay(self), lock_name=LOCK, limit=5)


class TaskTimesOut(Lifetime):
    """The guard's task has a timeout of its own; the workflow catches by name what leaves it."""

    def body(self) -> sfn.IChainable:
        work = tasks.LambdaInvoke.jsonata(
            self,
            "Work",
            lambda_function=self.forms.worker,
            payload=sfn.TaskInput.from_text(INPUT),
            retry_on_service_exceptions=False,
            task_timeout=sfn.Timeout.duration(Duration.seconds(TASK_SECONDS)),
        )
        around = sfn.Parallel.jsonata(self, "Around").branch(self.guarded(work))
        caught = sfn.Pass.jsonata(self, "Caught", outputs="{% $states.input.Error %}")
        return around.add_catch(caught, errors=["States.Timeout"])


class KeptAliveTaskTimesOut(TaskTimesOut):
    """The same beside a heartbeat."""

    keeps_alive = True


class ParallelInside(Form):
    """A Parallel is the guard's task, and its result leaves the guard."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        both = sfn.Parallel.jsonata(self, "Both")
        for side in ("Left", "Right"):
            both.branch(sfn.Pass.jsonata(self, side, outputs={side: INPUT}))
        return self.guard(both)
