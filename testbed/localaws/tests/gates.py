"""Workflows whose tasks note that they were entered, and wait until a test lets them go on."""

import time
from typing import Any

from testbed.localaws.workbench import Workbench

# `entered` has a character for each time; the task ends when `go` is there, or fails with `fail`.
GATE = """
import os, pathlib, time
gates = pathlib.Path(os.environ['GATES'])
def handler(event, context):
    with open(gates / (event['name'] + '.entered'), 'a') as entered: entered.write('x')
    while True:
        if (gates / (event['name'] + '.go')).exists(): return event
        if (gates / (event['name'] + '.fail')).exists(): raise RuntimeError(event['name'])
        time.sleep(0.01)
"""


class Gates:
    """Makes such tasks, and opens their gates."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self._files = bench.aws.home / f"gates-{time.monotonic_ns()}"
        self._files.mkdir()
        variables = {"GATES": str(self._files)}
        self.function = bench.function(GATE, Environment={"Variables": variables}, Timeout=30)

    def task(self, name: str, **fields: object) -> dict[str, Any]:
        """A JSONata task state; its result is its input, its variables and the redrives so far."""
        seen_by_task = {
            "name": name,
            "input": "{% $states.input %}",
            "redrives": "{% $states.context.Execution.RedriveCount %}",
            "retries": "{% $states.context.State.RetryCount %}",
            "lock": "{% $exists($lock) ? $lock : null %}",
            "own": "{% $exists($own) ? $own : null %}",
        }
        return {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Arguments": {"FunctionName": self.function, "Payload": seen_by_task},
            "Output": "{% $states.result.Payload %}",
            "End": True,
            **fields,
        }

    def open(self, *names: str) -> None:
        """Let these tasks end, now and whenever they are entered again."""
        for name in names:
            (self._files / f"{name}.go").touch()

    def fail(self, name: str) -> None:
        """Let this task fail, until its gate is opened."""
        (self._files / f"{name}.fail").touch()

    def times(self, name: str) -> int:
        """How often the task was entered."""
        entered = self._files / f"{name}.entered"
        return len(entered.read_text()) if entered.exists() else 0

    def wait_for(self, *names: str, times: int = 1) -> None:
        """Wait until each of these tasks was entered so many times."""
        deadline = time.monotonic() + 30
        while any(self.times(name) < times for name in names):
            if time.monotonic() > deadline:
                raise AssertionError(f"{names}: {[self.times(name) for name in names]}")
            time.sleep(0.01)


def states(**named: object) -> dict[str, Any]:
    return {"StartAt": next(iter(named)), "States": named}


def machine(**named: object) -> dict[str, Any]:
    return {"QueryLanguage": "JSONata", **states(**named)}


def parallel(*branches: object, **fields: object) -> dict[str, Any]:
    following = {} if "Next" in fields else {"End": True}
    return {"Type": "Parallel", "Branches": list(branches), **following, **fields}


def stop(bench: Workbench, execution: str) -> None:
    bench.workflows.stop_execution(executionArn=execution)


def redrive(bench: Workbench, execution: str) -> None:
    bench.workflows.redrive_execution(executionArn=execution)


def seen(name: str, data: object, *, redrives: int, **variables: object) -> dict[str, Any]:
    """What a task answers that was entered with this input and these variables."""
    assigned = {"lock": None, "own": None, **variables}
    return {"name": name, "input": data, "redrives": redrives, "retries": 0, **assigned}


def pass_to(following: str, output: object, **assign: object) -> dict[str, Any]:
    return {"Type": "Pass", "Output": output, "Assign": assign, "Next": following}
