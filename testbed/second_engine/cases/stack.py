"""Guards that no suite of tests/e2e has."""

from __future__ import annotations

from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import Waiting
from tests.e2e.guard.stack import PER_EXECUTION, Form, Forms
from tests.e2e.lifetimes.stack import KEPT_ALIVE, PLAIN
from tests.e2e.workflow_parts import INPUT, invoke, stay

TASK_SECONDS: Final = 2


class GuardCases(Forms):
    """One state machine a case."""

    waiting = Waiting.queue()

    def declare(self) -> None:
        self.add("FiveInside", lambda form: form.guard(stay(form), limit=5))
        self.add("TaskTimesOut", task_times_out, **PLAIN)
        self.add("KeptAliveTaskTimesOut", task_times_out, **KEPT_ALIVE)
        self.add("ParallelInside", parallel_inside)


def task_times_out(form: Form) -> sfn.IChainable:
    """The guard's task has a timeout of its own; the workflow catches by name what leaves it."""
    timeout = sfn.Timeout.duration(Duration.seconds(TASK_SECONDS))
    work = invoke(form, "Work", form.forms.worker, task_timeout=timeout)
    around = sfn.Parallel.jsonata(form, "Around").branch(form.guard(work))
    caught = sfn.Pass.jsonata(form, "Caught", outputs="{% $states.input.Error %}")
    return around.add_catch(caught, errors=["States.Timeout"])


def parallel_inside(form: Form) -> sfn.IChainable:
    """A Parallel is the guard's task, and its result leaves the guard."""
    both = sfn.Parallel.jsonata(form, "Both")
    for side in ("Left", "Right"):
        both.branch(sfn.Pass.jsonata(form, side, outputs={side: INPUT}))
    return form.guard(both, lock_name=PER_EXECUTION)
