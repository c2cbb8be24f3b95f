"""One queue for clients and workflows: who leaves tells a waiting workflow, and asks who lives."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, NoRegionError

from fairlock.client.reporting import log_event
from fairlock.store.context import Event, Evicted, HandedOver, LivenessUnknown, PushUnknown
from tests.support import Operations, acquire, logged_here, owner, store_over
from tests.support.faulty_table import client_error, show
from tests.unit.client.conftest import Near

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:Billing:run-1"


NoSuchExecution = type("NoSuchExecution", (ClientError,), {})


@dataclass
class StepFunctions:
    """Remembers whom it told what; refuses everything if it is to."""

    status: str = "RUNNING"
    refuses: Exception | None = None
    told: list[tuple[str, Any]] = field(default_factory=list)
    exceptions = SimpleNamespace(ExecutionDoesNotExist=NoSuchExecution)

    def send_task_success(self, **request: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told.append((request["taskToken"], json.loads(request["output"])))

    def describe_execution(self, **_request: str) -> dict[str, str]:
        if self.refuses is not None:
            raise self.refuses
        return {"status": self.status}

    def close(self) -> None:
        """Nothing is open."""


def queue_a_workflow(near: Near) -> Operations:
    workflow = store_over(near.table, near.clock)
    workflow.acquire(
        acquire("billing", lock_name="a", execution_arn=EXECUTION, waits=True, task_token="token-1")
    )
    return workflow


def test_a_client_that_leaves_hands_over_to_the_workflow_that_waits(near: Near) -> None:
    step_functions = StepFunctions()
    lock = near.client("anna", stepfunctions=step_functions).acquire("a")
    queue_a_workflow(near)
    lock.release()
    ((token, answer),) = step_functions.told
    assert (token, answer["acquired"], answer["owner_id"]) == ("token-1", True, owner("billing"))
    assert answer["fencing_token"] == lock.fencing_token + 1


@pytest.mark.parametrize("is_made", [True, False])
def test_a_workflow_that_cannot_be_told_is_no_error_but_is_logged(
    near: Near, store_events: list[Event], *, is_made: bool
) -> None:
    """A permission is missing, or there is no region for a client of Step Functions."""
    refusing = StepFunctions(refuses=client_error("AccessDeniedException"))
    session = SimpleNamespace(client=Mock(side_effect=NoRegionError))
    near.table.meta.region_name = "us-east-1" if is_made else None
    given = {"stepfunctions": refusing} if is_made else {"session": session}
    lock = near.client("anna", **given).acquire("a")
    queue_a_workflow(near)
    assert lock.release() is True
    assert [type(event) for event in store_events] == [PushUnknown, HandedOver]
    assert near.table.state("a").holders[0].owner_name == "billing"


def workflow_overdue(near: Near) -> None:
    """A workflow holds the lock, and its lease of a minute is long over."""
    workflow = store_over(near.table, near.clock)
    workflow.acquire(acquire("billing", lock_name="a", execution_arn=EXECUTION))
    near.clock.advance(300)


@pytest.mark.parametrize("status", ["RUNNING", "ABORTED", "unknown"])
def test_the_lock_of_a_workflow_is_taken_only_if_that_is_over(
    near: Near, store_events: list[Event], status: str
) -> None:
    workflow_overdue(near)
    refuses = client_error("AccessDeniedException") if status == "unknown" else None
    lock = near.client("ben", stepfunctions=StepFunctions(status, refuses)).try_acquire("a")
    assert (lock is not None) is (status == "ABORTED")
    unknown = LivenessUnknown(lock_name="a", execution_arn=EXECUTION)
    assert (store_events == [unknown]) is (status == "unknown")


def test_a_single_try_has_time_to_make_the_first_client_for_step_functions(near: Near) -> None:
    class FirstClient(StepFunctions):
        def describe_execution(self, **request: str) -> dict[str, str]:
            near.clock.stall(1.5)  # To load the model and to connect on a busy machine.
            return super().describe_execution(**request)

    workflow_overdue(near)
    locks = near.client("ben", stepfunctions=FirstClient("ABORTED"))
    assert locks.try_acquire("a") is not None


def test_whatever_a_client_does_with_a_lock_names_the_partition_of_that_lock(near: Near) -> None:
    """So a policy can let a client use the locks of a prefix (`grant_client(prefix=…)`)."""
    locks, other = (near.client(name, stepfunctions=StepFunctions()) for name in ("anna", "ben"))
    lock = locks.acquire("a")
    queue_a_workflow(near)
    named: set[str] = set()

    def note(_name: str, request: dict[str, Any]) -> None:
        text = json.dumps(request, default=str)
        named.update(re.findall(r'":?pk": \{"S": "([^"]*)"\}', text))

    near.table.will(show(note))
    assert other.try_acquire("a") is None
    lock.heartbeat()
    lock.release()
    token = other.describe("a").holders[0].fencing_token  # type: ignore[union-attr]  # it is held
    other.force_release("a", fencing_token=token, reason="test")
    with other.hold("a"):
        other.pause("a", reason="test")
        other.resume("a")
    assert named == {"LOCK#a"}


def test_the_log_tells_how_many_were_evicted(caplog: pytest.LogCaptureFixture) -> None:
    for holders in (1, 2):
        log_event(Evicted(lock_name="a", holders=holders))
    assert logged_here(caplog) == [
        "lock 'a': evicted a holder whose lease was over",
        "lock 'a': evicted 2 holders whose lease was over",
    ]
