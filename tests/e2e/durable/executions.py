"""Durable functions that hold locks, and their executions on one lock, which note what they do."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard
from tests.e2e.deployment import Deployment, Json, wait_until
from tests.e2e.guard.stack import Form, Forms
from tests.e2e.workflow_parts import durable_code, durable_function, invoke

TIMES: Final = int(os.environ.get("FAIRLOCK_DURABLE_TIMES", "1"))
"""How often each end of an execution is measured; `make durable` does it 20 times."""
TIMES_OUT_SECONDS: Final = 6
_MOST_STARTS: Final = 5


class Note(NamedTuple):
    """One line: another caller came in or left."""

    what: str
    name: str
    token: int
    at: float


@dataclass(frozen=True)
class DurableLock:
    """A lock that no other test uses, and the notes of those who held it."""

    deployment: Deployment
    directory: Path
    lock: str = field(default_factory=lambda: f"durable/{uuid.uuid4()}")
    stack: str = "DurableForms"

    def start(self, name: str, *, function: str = "Durable", **terms: Any) -> str:  # noqa: ANN401 - JSON
        """Starts a durable execution; returns its ARN."""
        answer = self.functions.invoke(
            FunctionName=self.deployment.outputs[self.stack][f"{function}FunctionName"],
            Qualifier="$LATEST",
            InvocationType="Event",
            Payload=json.dumps(self.event(name, **terms)),
        )
        return str(answer["DurableExecutionArn"])

    def event(self, name: str, **terms: object) -> Json:
        return {"lock": self.lock, "name": name, "notes": str(self.file), **terms}

    def start_inside(self, name: str, **terms: Any) -> str:  # noqa: ANN401 - same
        """Starts one and sees it hold the lock; on a busy machine the first may time out before."""
        for _ in range(_MOST_STARTS):
            arn = self.start(name, **terms)
            wait_until(lambda arn=arn: arn in self.holders() or self.is_over(arn))  # type: ignore[misc]  # mypy does not infer it
            if arn in self.holders():
                return arn
        raise AssertionError(f"{_MOST_STARTS} executions ended without the lock")

    def start_behind(self, name: str, **terms: Any) -> str:  # noqa: ANN401 - same
        """Starts one and sees it in the queue."""
        arn = self.start(name, **terms)
        wait_until(lambda: arn in self.deployment.waiters(self.lock))
        return arn

    def stop(self, arn: str) -> None:
        self.functions.stop_durable_execution(DurableExecutionArn=arn)

    def describe(self, arn: str) -> Json:
        return dict(self.functions.get_durable_execution(DurableExecutionArn=arn))

    def is_over(self, arn: str) -> bool:
        return bool(self.describe(arn)["Status"] != "RUNNING")

    def ended(self, arn: str, *, seconds: float = 120) -> Json:
        wait_until(lambda: self.is_over(arn), seconds=seconds)
        return self.describe(arn)

    def invocations(self, arn: str) -> int:
        """How often the function was invoked for this execution."""
        return sum(event["EventType"] == "InvocationCompleted" for event in self._history(arn))

    def operations(self, arn: str) -> int:
        """How many steps and callbacks it has begun, each of which Lambda charges for."""
        kinds, events = ("Step", "Callback"), self._history(arn)
        return len({event["Id"] for event in events if event["EventType"].startswith(kinds)})

    def callbacks(self, arn: str) -> list[str]:
        """The ids of the callbacks that it has made so far."""
        return [
            event["CallbackStartedDetails"]["CallbackId"]
            for event in self._history(arn)
            if event["EventType"] == "CallbackStarted"
        ]

    def _history(self, arn: str) -> list[Json]:
        asked = {"DurableExecutionArn": arn, "MaxItems": 1000}
        return list(self.functions.get_durable_execution_history(**asked)["Events"])

    def holders(self) -> list[str]:
        return self.deployment.holders(self.lock)

    def notes(self) -> list[Note]:
        if not self.file.exists():
            return []
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return [Note(what, name, int(token), float(at)) for what, name, token, at in lines]

    @property
    def file(self) -> Path:
        return self.directory / self.lock.rpartition("/")[2]

    @cached_property
    def functions(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.deployment.aws.client("lambda", max_pool_connections=32)


@contextmanager
def without_events(deployment: Deployment, source: str) -> Iterator[None]:
    """No status event of this source reaches the reaper: contenders have to ask."""
    events = deployment.aws.client("events")
    rules = [
        rule["Name"]
        for rule in events.list_rules()["Rules"]
        if source in rule.get("EventPattern", "")
    ]
    assert rules
    try:
        for rule in rules:
            events.disable_rule(Name=rule)
        yield
    finally:
        for rule in rules:
            events.enable_rule(Name=rule)


def take(deployment: Deployment, lock: str) -> None:
    """Until the next caller is granted the lock of an execution that is over."""
    owner = {"lock_name": lock, "owner_id": str(uuid.uuid4())}
    wait_until(lambda: bool(deployment.invoke("Acquire", **owner)["acquired"]))
    deployment.invoke("Release", **owner)


class DurableForms(Forms):
    """Two durable functions, one of which soon times out, and a guarded workflow."""

    def declare(self) -> None:
        with durable_code() as code:
            for name, seconds in (("Durable", 3600), ("TimesOut", TIMES_OUT_SECONDS)):
                durable_function(self, name, locks=self.locks, code=code, seconds=seconds)
            plain = lambda_.Function(
                self,
                "Plain",
                code=code,
                handler="inside.plain",
                runtime=lambda_.Runtime.PYTHON_3_13,
                timeout=Duration.minutes(1),
            )
        max_wait = Duration.minutes(10)
        self.add("BesideDurable", partial(notes, function=plain), max_wait=max_wait)


def notes(form: Form, *, function: lambda_.IFunction) -> sfn.IChainable:
    """A task that notes its fencing token, as the durable functions do."""
    payload = {
        "name": "{% $states.input.name %}",
        "notes": "{% $states.input.notes %}",
        "token": LockGuard.fencing_token_of(form, "Guard"),
    }
    return form.guard(invoke(form, "Work", function, payload))
