"""What AWS tells: events of the end of an execution, of a mass stop, and of a lock."""

from __future__ import annotations

import itertools
import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from botocore.exceptions import ClientError

from tests.e2e.deployment import Deployment, Json, wait_until
from tests.e2e.durable.executions import DurableLock
from tests.e2e.locks import ContestedLock
from tests.smoke.account import EVENTS, WORKFLOWS, Account
from tests.smoke.conftest import LONG_SECONDS, dead_letters, in_parallel
from tests.smoke.separate_stacks import LIFECYCLE_PREFIX
from tests.smoke.stack import DURABLE_SECONDS

# Case 8: the raw status events of Step Functions.


ENDS = {"SUCCEEDED": 0, "FAILED": 0, "TIMED_OUT": 60, "ABORTED": 60}
"""Each kind of end, and how long the work would take."""


class Mailbox:
    """The events that have come out of a queue so far."""

    def __init__(self, account: Account, url: str) -> None:
        self._queues = account.client("sqs")
        self._url = url
        self._events: list[Json] = []

    def all(self) -> list[Json]:
        answer = self._queues.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=0
        )
        for message in answer.get("Messages", []):
            self._events.append(json.loads(message["Body"]))
            self._queues.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return self._events

    def first(self, **detail: object) -> Json:
        """The event with these details, waited for."""
        found: list[Json] = []

        def has_come() -> bool:
            found.extend(e for e in self.all() if detail.items() <= e["detail"].items())
            return bool(found)

        wait_until(has_come)
        return found[0]

    def of_locks(self, prefix: str) -> list[Json]:
        """Those of locks whose names begin so, by kind; one that came twice is counted once."""
        found = {
            event["detail"]["event_id"]: event
            for event in self.all()
            if event["detail"]["lock_name"].startswith(prefix)
        }
        return sorted(found.values(), key=lambda event: str(event["detail-type"]))


def test_each_kind_of_end_is_reported_with_execution_status_and_redrive_count(
    account: Account,
) -> None:
    """Decides whether status events have the fields that the reaper's rule selects and passes on.

    The raw events are shown with the figures of the run.
    """
    workflows, received = account.workflows, Mailbox(account, account.output("EventsUrl"))
    executions = {
        status: workflows.start(
            "Ends", {"seconds": seconds, **({"raise": "Failed"} if status == "FAILED" else {})}
        )
        for status, seconds in ENDS.items()
    }
    aborted = executions["ABORTED"]
    wait_until(lambda: "Stay" in workflows.states_entered(aborted))
    workflows.stop(aborted)
    for status, execution in executions.items():
        event = received.first(executionArn=execution, status=status, redriveCount=0)
        account.tell(f"raw event: {json.dumps(event)}")
        assert event["source"] == "aws.states"
        assert event["detail-type"] == "Step Functions Execution Status Change"
    workflows.redrive(aborted)
    workflows.stop(aborted)
    received.first(executionArn=aborted, status="ABORTED", redriveCount=1)


def test_the_lock_of_a_child_execution_is_free_when_its_parent_is_stopped(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether child executions of a Distributed Map that are aborted send status events.

    Without events the lock stays until another caller wants it, which no one does here.
    """
    workflows = account.workflows
    items = [{"lock": lock.lock, "seconds": WORK_SECONDS}]
    execution = workflows.start("GuardInDistributedMap", {"items": items})
    wait_until(lambda: lock.holders() != [])
    [child] = lock.holders()
    assert "/Each:" in child
    workflows.stop(execution)
    stopped_at = time.time()
    wait_until(lambda: lock.holders() == [])
    assert workflows.ended(child).status == "ABORTED"
    account.tell(f"the lock of an aborted child was free after {time.time() - stopped_at:.1f} s")


# Case 10: many executions are stopped together.


WORK_SECONDS = 3000
_METRIC_DELAY_SECONDS = 180


def test_the_locks_of_many_stopped_executions_are_freed_without_a_dead_letter(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether throttles or recursion detection stop the reaper after a mass stop."""
    workflows, sizes = account.workflows, account.sizes
    began = datetime.now(UTC)
    locks = [replace(lock, lock=f"{lock.lock}/{number}") for number in range(sizes["stopped"])]
    executions = [each.start("Holds", seconds=WORK_SECONDS) for each in locks]
    for each, execution in zip(locks, executions, strict=True):
        each.await_holder(execution)
    many = [replace(lock, lock=f"{lock.lock}/one/{number}") for number in range(sizes["claims"])]
    terms = {"execution_arn": executions[0], "lease_seconds": 12 * 3600}
    assert all(in_parallel(account, lambda each: each.ask(**terms)["acquired"], many))

    stopped_at = time.time()
    in_parallel(account, workflows.stop, executions)
    for each in (*locks, *many):
        wait_until(lambda each=each: each.holders() == [], seconds=LONG_SECONDS)  # type: ignore[misc]  # this one
    seconds = time.time() - stopped_at
    account.tell(f"{len(executions)} stopped, {len(many)} locks of one: free in {seconds:.1f} s")
    for execution in executions:  # until the second pass is done with them
        wait_until(
            lambda execution=execution: workflows.claims(execution) == [],  # type: ignore[misc]  # this one
            seconds=LONG_SECONDS,
            pause_seconds=2,
        )
    assert dead_letters(account) == 0
    assert _dropped_as_recursive(account, began) == 0


def _dropped_as_recursive(account: Account, since: datetime) -> int:
    """How many invocations of the reaper Lambda has refused as a loop."""
    if account.is_embedded:
        return 0  # It has no recursion detection; whether AWS's stays quiet, AWS decides.
    time.sleep(_METRIC_DELAY_SECONDS)  # CloudWatch shows a metric after minutes.
    reaper = account.workflows.outputs[account.workflows.service]["ReapFunctionName"]
    answer = account.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/Lambda",
        MetricName="RecursiveInvocationsDropped",
        Dimensions=[{"Name": "FunctionName", "Value": reaper}],
        StartTime=since - timedelta(minutes=5),
        EndTime=datetime.now(UTC) + timedelta(minutes=5),
        Period=60,
        Statistics=["Sum"],
    )
    return int(sum(point["Sum"] for point in answer["Datapoints"]))


# Case 17: lifecycle events, from the stream to the target of a rule; and the monitoring.

TOLD: Final = [
    ("Lock granted", "the newest"),
    ("Lock granted", "the owner"),
    ("Lock released", "the newest"),
    ("Lock released", "the owner"),
    ("Waiter superseded", "the older one"),
]


def test_grants_releases_and_the_superseded_reach_a_rule_and_renewals_and_waiters_do_not(
    account: Account, lock: ContestedLock
) -> None:
    """Decides whether the stream's filter lets locks through, and events reach a rule's target.

    And whether AWS accepts the dashboard, the alarms and the saved queries of a LockMonitoring.
    """
    name = f"{LIFECYCLE_PREFIX}{lock.lock}"
    owner, leaving, older, newest = (
        {"lock_name": name, "owner_id": f"{who} of {name}", "owner_name": who}
        for who in ("the owner", "who leaves", "the older one", "the newest")
    )
    with account.created(EVENTS) as service:
        received = Mailbox(account, service.outputs[EVENTS]["LifecycleEventsUrl"])
        _wait_for_the_stream(service, received)
        granted = service.invoke("Acquire", **owner, only_newest=1)
        queued = service.invoke("Acquire", **leaving, only_newest=2, queue=True)
        assert service.invoke("Heartbeat", lock_name=name, owner_id=owner["owner_id"])["renewed"]
        gives_up = {"lock_name": name, "owner_id": leaving["owner_id"], "ticket": queued["ticket"]}
        service.invoke("Release", **gives_up)
        service.invoke("Acquire", **older, only_newest=3, queue=True)
        service.invoke("Acquire", **newest, only_newest=9, queue=True)
        service.invoke("Release", lock_name=name, owner_id=owner["owner_id"])
        handed_over = service.invoke("Acquire", **newest, only_newest=9, queue=True)
        assert handed_over["acquired"] is True
        service.invoke("Release", lock_name=name, owner_id=newest["owner_id"])
        wait_until(lambda: len(received.of_locks(name)) >= len(TOLD), seconds=LONG_SECONDS)
        told = received.of_locks(name)
        account.tell(f"raw events: {json.dumps(told)}")
        details = [(each["detail-type"], each["detail"]) for each in told]
        assert sorted((kind, detail["owner_name"]) for kind, detail in details) == TOLD
        tokens = {d["fencing_token"] for _, d in details if d["owner_name"] == "the owner"}
        assert tokens == {granted["fencing_token"]}
        [superseded] = [detail for kind, detail in details if kind == "Waiter superseded"]
        assert (superseded["version"], superseded["newest"]) == (3, 9)
        assert f"of {name}" not in json.dumps(told), "an owner id is not told"
        account.tell(_monitoring(account))


def _wait_for_the_stream(service: Deployment, received: Mailbox) -> None:
    """Until events come: a new mapping of a stream does not read what was written before."""
    numbers = itertools.count()

    def told() -> bool:
        name = f"{LIFECYCLE_PREFIX}first/{next(numbers)}"
        granted = service.invoke("Acquire", lock_name=name)
        service.invoke("Release", lock_name=name, owner_id=granted["owner_id"])
        return bool(received.of_locks(f"{LIFECYCLE_PREFIX}first/"))

    wait_until(told, seconds=LONG_SECONDS, pause_seconds=2)


def _monitoring(account: Account) -> str:
    """How much there is of the stack's monitoring."""
    kinds = ("AWS::CloudWatch::Dashboard", "AWS::CloudWatch::Alarm", "AWS::Logs::QueryDefinition")
    found = {kind: len(account.stacks.resources(EVENTS, kind)) for kind in kinds}
    assert all(found.values()), found
    return f"monitoring: {found}"


# Case 16: durable functions that wait for a lock, and die while they hold it.

GONE: Final = frozenset(
    {"CallbackTimeoutException", "ResourceNotFoundException", "InvalidParameterValueException"}
)
"""What the service takes for the news that no one waits for a push."""


def test_a_durable_function_waits_without_invocations_and_its_end_frees_the_lock(
    account: Account, lock: ContestedLock, tmp_path: Path
) -> None:
    """Decides whether `hold` waits without invocations, and a stop and a timeout reach the reaper.

    The boto3 of Lambda's runtime must know durable executions: otherwise the first one gets
    LockStoreMisconfigured, which names the version. The raw events are shown with the figures.
    """
    notes = tmp_path if account.is_embedded else Path("/tmp")  # noqa: S108 - Lambda's own
    executions = DurableLock(account.workflows, notes, lock.lock, WORKFLOWS)
    holder = executions.start_inside("holder", stays=True)
    waiter = executions.start_behind("waiter", stays=True)
    wait_until(lambda: executions.invocations(waiter) == 1)
    _stopped_while_it_waits(account, executions)
    assert executions.invocations(waiter) == 1, "invoked while it waited"

    executions.stop(holder)
    _tell_freed(account, executions, "stopped, handed over", to=[waiter])
    wait_until(lambda: executions.invocations(waiter) == 2)
    _tell_event(account, holder, "STOPPED")
    code = _refusal(executions, executions.callbacks(waiter)[0])
    account.tell(f"a callback that was completed before: {code}")
    assert code in GONE
    if account.is_embedded:  # There `tests/e2e/durable` has a function that times out sooner.
        executions.stop(waiter)
        return
    ended = executions.ended(waiter, seconds=DURABLE_SECONDS + 60)
    assert ended["Status"] == "TIMED_OUT"
    _tell_freed(account, executions, "timed out, free", to=[])
    _tell_event(account, waiter, "TIMED_OUT")


def _stopped_while_it_waits(account: Account, executions: DurableLock) -> None:
    """An execution that dies in the queue leaves it."""
    dies = executions.start_behind("dies")
    wait_until(lambda: executions.callbacks(dies) != [])
    executions.stop(dies)
    code = _refusal(executions, executions.callbacks(dies)[0])
    account.tell(f"a callback of a stopped execution: {code}")
    wait_until(lambda: dies not in executions.deployment.waiters(executions.lock))


def _refusal(executions: DurableLock, callback_id: str) -> str:
    """What Lambda says to a caller that completes a callback."""
    try:
        executions.functions.send_durable_execution_callback_success(
            CallbackId=callback_id, Result=b"{}"
        )
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "accepted"


def _tell_freed(account: Account, executions: DurableLock, what: str, *, to: list[str]) -> None:
    began = time.monotonic()
    wait_until(lambda: executions.holders() == to, pause_seconds=0.1)
    account.tell(f"durable execution {what} after {time.monotonic() - began:.1f} s")


def _tell_event(account: Account, execution: str, status: str) -> None:
    """Waits for the event, and checks the fields that the reaper's rule selects and passes on."""
    received = Mailbox(account, account.output("DurableEventsUrl"))
    event = received.first(durableExecutionArn=execution, status=status)
    account.tell(f"raw event: {json.dumps(event)}")
    assert event["source"] == "aws.lambda"
    assert event["detail-type"] == "Durable Execution Status Change"
