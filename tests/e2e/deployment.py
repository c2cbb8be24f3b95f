"""What end-to-end tests say to the deployed service, in their words."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fairlock import LockClient
from fairlock.aws.lock_table import LockTable
from fairlock.protocol.claims import Claim, ReapStage, claims_of, read_claim
from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.protocol.schema import EXECUTION_ARN, HELD, lock_key
from fairlock.protocol.table_requests import Item
from fairlock.protocol.waiters import waiters_of
from testbed.localaws import LocalAws


def _name(event: dict[str, Any]) -> str | None:
    name: str | None = event.get("stateEnteredEventDetails", {}).get("name")
    return name


def _seconds(event: dict[str, Any]) -> float:
    return float(event["timestamp"].timestamp())


Json = dict[str, Any]

LONGEST_WAIT_SECONDS = 300
"""A bound and no promise: what a reap pass misses comes again after two minutes, by design."""
LONGEST_CALL_SECONDS = 60
SECOND_PASS_SECONDS = 35
"""From the end of an execution until the reaper's second pass."""
MOST_CLIENTS = 32
_LONGEST_PAUSE_SECONDS = 1.0
_SHORTEST_PAUSE_SECONDS = 0.02


@dataclass(frozen=True)
class Ended:
    """How an execution ended."""

    status: str
    output: Any = None
    error: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Deployment:
    """The embedded AWS, and the outputs of the stacks in it.

    Attributes:
        service: the stack whose lock service is meant.
    """

    aws: LocalAws
    outputs: dict[str, dict[str, str]]
    service: str = "Fairlock"

    def of(self, service: str) -> Deployment:
        """The same with another stack's lock service."""
        return replace(self, service=service)

    @property
    def table_name(self) -> str:
        return self.outputs[self.service]["LockTableName"]

    def function_name(self, operation: str) -> str:
        """The function for "Acquire", "Heartbeat" or "Release"."""
        return self.outputs[self.service][f"{operation}FunctionName"]

    @cached_property
    def _workflows(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.aws.client("stepfunctions", max_pool_connections=MOST_CLIENTS)

    @cached_property
    def _functions(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.aws.client(
            "lambda", read_timeout=LONGEST_CALL_SECONDS, max_pool_connections=MOST_CLIENTS
        )

    @cached_property
    def table(self) -> LockTable:
        return LockTable(self._dynamodb, self.table_name)

    @cached_property
    def _dynamodb(self) -> Any:  # noqa: ANN401 - a boto3 client
        return self.aws.client("dynamodb", max_pool_connections=MOST_CLIENTS)

    def invoke(self, operation: str, **request: object) -> Json:
        """Calls "Acquire", "Heartbeat" or "Release" directly; an error of theirs fails the test."""
        response = self._functions.invoke(
            FunctionName=self.function_name(operation),
            Payload=json.dumps(request),
        )
        answer = json.load(response["Payload"])
        assert "FunctionError" not in response, answer
        assert isinstance(answer, dict)
        return answer

    def force_release(self, lock_name: str) -> None:
        """Takes a lock away from its only holder, as an administrator does."""
        [holder] = self.state(lock_name).holders
        token, reason = holder.fencing_token, "the test takes it"
        with LockClient(self.table_name, client=self._dynamodb) as locks:
            locks.force_release(lock_name, fencing_token=token, reason=reason)

    def start(self, machine: str, value: object) -> str:
        """Starts a workflow of the test stacks, and returns the execution's ARN."""
        arn = self._machine_arn(machine)
        started = self._workflows.start_execution(stateMachineArn=arn, input=json.dumps(value))
        return str(started["executionArn"])

    def ended(
        self,
        execution_arn: str,
        *,
        seconds: float = LONGEST_WAIT_SECONDS,
        pause_seconds: float = _LONGEST_PAUSE_SECONDS,
    ) -> Ended:
        """Waits for an execution's end."""
        bounds = {"seconds": seconds, "pause_seconds": pause_seconds}
        wait_until(lambda: not self.is_running(execution_arn), **bounds)
        return _ended(self._describe(execution_arn))

    def is_running(self, execution_arn: str) -> bool:
        return bool(self._describe(execution_arn)["status"] == "RUNNING")

    def run(self, machine: str, value: object) -> Ended:
        """Runs a Standard workflow of the test stacks to its end."""
        return self.ended(self.start(machine, value))

    def run_express(self, machine: str, value: object, **named: str) -> Ended:
        """Runs an Express workflow of the test stacks to its end."""
        arn = self._machine_arn(machine)
        given = {"stateMachineArn": arn, "input": json.dumps(value), **named}
        return _ended(self._workflows.start_sync_execution(**given))

    def states_entered(self, execution_arn: str) -> list[str]:
        """The names of the states in the order in which they were entered."""
        return [name for event in self.events(execution_arn) if (name := _name(event))]

    def entries(self, execution_arn: str, state: str, *, after: float = 0.0) -> list[float]:
        """When a state was entered since a moment, in whatever branch, in epoch seconds."""
        found = [_seconds(e) for e in self.events(execution_arn) if _name(e) == state]
        return [entered for entered in found if entered > after]

    def entered(self, execution_arn: str, state: str) -> float:
        """When a state was entered first. One that was never entered fails the test."""
        return self.entries(execution_arn, state)[0]

    def waited(self, execution_arn: str, *, until: str = "Guard: Give up") -> float:
        """Seconds from the beginning of a guard until it gave up."""
        entered = [self.entered(execution_arn, state) for state in ("Guard: Enter", until)]
        return entered[1] - entered[0]

    def acquires(self, execution_arn: str, *, after: float = 0.0) -> list[float]:
        """When its guard has called acquire since a moment, repeated calls included.

        Of an execution that runs one state after the other.
        """
        begun, within = [], None
        for event in self.events(execution_arn):
            within = _name(event) or within
            if within == "Guard: Acquire" and event["type"] == "TaskScheduled":
                begun.append(_seconds(event))
        return [moment for moment in begun if moment > after]

    def transitions(self, execution_arn: str) -> int:
        """What is billed: states entered, and one more for every time a task was repeated."""
        kinds: list[str] = [event["type"] for event in self.events(execution_arn)]
        entered = sum(kind.endswith("StateEntered") for kind in kinds)
        return entered + kinds.count("TaskScheduled") - kinds.count("TaskStateEntered")

    def calls(self, execution_arn: str) -> int:
        """How many tasks were begun, repeated ones included."""
        return sum(event["type"] == "TaskScheduled" for event in self.events(execution_arn))

    def stop(self, execution_arn: str) -> None:
        """StopExecution: nothing inside the workflow can catch it."""
        self._workflows.stop_execution(executionArn=execution_arn)

    def redrive(self, execution_arn: str) -> None:
        """RedriveExecution: goes on with the states that were interrupted."""
        self._workflows.redrive_execution(executionArn=execution_arn)

    def stopped_at(self, execution_arn: str) -> float:
        """When an ended execution ended, in epoch seconds."""
        return float(self._describe(execution_arn)["stopDate"].timestamp())

    def seconds(self, execution_arn: str) -> float:
        """How long an ended execution took."""
        found = self._describe(execution_arn)
        return float((found["stopDate"] - found["startDate"]).total_seconds())

    def holders(self, lock_name: str) -> list[str]:
        """Who holds a lock, by owner_name: of a workflow, its execution's ARN."""
        return [holder.owner_name for holder in self.state(lock_name).holders]

    def state(self, lock_name: str) -> LockState:
        """A lock as its item tells it; one that was never used has no holders."""
        return read_state(self._item(lock_name))

    def waiters(self, lock_name: str) -> list[str]:
        """The ARNs of the executions in a lock's queue, the oldest first."""
        found = self._waiters(lock_name)
        return [item[EXECUTION_ARN]["S"] for item in found if EXECUTION_ARN in item]

    def queue_length(self, lock_name: str) -> int:
        """How many wait, of whatever kind."""
        return len(self._waiters(lock_name))

    def _waiters(self, lock_name: str) -> list[Item]:
        return self.table.query_all(waiters_of(lock_name))

    def claims(self, execution_arn: str) -> list[Claim]:
        """What an execution has on record, and the reaper is not done with for good."""
        query = claims_of(execution_arn, before=ReapStage.SECOND_PASS_DONE)
        return [read_claim(execution_arn, item) for item in self.table.query_all(query)]

    def failed_calls(self, execution_arn: str) -> list[str]:
        """The errors of all tasks and of what they assign, also of those that were repeated."""
        return [
            event[details]["error"]
            for event in self.events(execution_arn)
            for details in ("taskFailedEventDetails", "evaluationFailedEventDetails")
            if details in event
        ]

    def held(self, lock_name: str) -> int:
        """How many permits of a lock are out. A lock that was never used fails the test."""
        return int(self._item(lock_name)[HELD]["N"])

    def _item(self, lock_name: str) -> Json:
        """Empty if the lock was never used."""
        key = lock_key(lock_name)
        found = self._dynamodb.get_item(TableName=self.table_name, Key=key, ConsistentRead=True)
        return dict(found.get("Item", {}))

    def _machine_arn(self, machine: str) -> str:
        [arn] = [
            stack[key] for stack in self.outputs.values() for key in stack if key == f"{machine}Arn"
        ]
        return arn

    def events(self, execution_arn: str) -> list[Json]:
        """Its history."""
        paginator = self._workflows.get_paginator("get_execution_history")
        return [
            event
            for page in paginator.paginate(executionArn=execution_arn)
            for event in page["events"]
        ]

    def _describe(self, execution_arn: str) -> Json:
        return dict(self._workflows.describe_execution(executionArn=execution_arn))


def _ended(description: Json) -> Ended:
    succeeded = description["status"] == "SUCCEEDED"
    return Ended(
        status=description["status"],
        # The emulator shows an output of failed executions, too; AWS has none.
        output=json.loads(description["output"]) if succeeded else None,
        error=description.get("error"),
        cause=description.get("cause"),
    )


def most_inside(spans: Iterable[Json]) -> int:
    """How many were inside at the same time, by what each tells of its work."""
    spans = list(spans)
    steps = sorted(
        [(span["began_ms"], 1) for span in spans] + [(span["ended_ms"], -1) for span in spans]
    )
    # Who is ready within a millisecond leaves before it enters here, and was inside as well.
    return max(1, *itertools.accumulate(step for _, step in steps))


def wait_until(
    condition: Callable[[], bool],
    *,
    seconds: float = LONGEST_WAIT_SECONDS,
    pause_seconds: float = _LONGEST_PAUSE_SECONDS,
) -> None:
    """Polls a condition, and fails the test if it does not hold within the time.

    A pause is a sixth of the time that has passed, and no longer than `pause_seconds`: what takes
    long need not be polled often, and each poll costs the machine some milliseconds.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s"
        time.sleep(min(max(waited / 6, _SHORTEST_PAUSE_SECONDS), pause_seconds))
