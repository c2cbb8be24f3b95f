"""What a role may forge or repeat: each is refused, or harms only its own."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from fairlock.clock import stored_end_ms
from tests.e2e.attacks import redrives, siblings
from tests.e2e.attacks.redrives import GUARDED, UNGUARDED, Redriven
from tests.e2e.attacks.siblings import (
    ERROR,
    FAILING_BRANCHES,
    FAILING_CHILDREN,
    LONG_SECONDS,
    REDRIVEN,
    Children,
    Siblings,
)
from tests.e2e.attacks.stack import LEASE
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.lifetimes.contested_lock import QUICK_SECONDS, ContestedLock
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.e2e.scenario_runs import (
    ScenarioRuns,
    begun,
    reap_passes,
    wait_for_reap_passes,
    warm_up,
)


@pytest.fixture(scope="module")
def deployment(dying: Deployment) -> Deployment:
    return dying


@pytest.fixture(scope="module", autouse=True)
def runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    """All attacks are begun at the same time."""
    warm_up(deployment, environments=3)
    with begun(deployment, {**redrives.SCENARIOS, **siblings.SCENARIOS}) as runs:
        yield runs


# An event that others make frees no lock of a workflow that runs.

DETAIL_TYPE: Final = "Step Functions Execution Status Change"
REFUSED: Final = "NotAuthorizedForSourceException"
"""Of PutEventsResultEntry in EventBridge's API reference."""
A_DAY_SECONDS: Final = 86_400


class Forger:
    """Someone who may put events and make buses and rules, in the account of the service."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.events: Any = deployment.aws.client("events")
        self.contested = ContestedLock(deployment)
        self.execution = self.contested.start_inside("Stays", seconds=LONG_SECONDS)

    def put(self, *, source: str, bus: str = "default") -> str | None:
        """An event that says that the execution has been stopped; the error of EventBridge."""
        detail = {
            "executionArn": self.execution,
            "status": "ABORTED",
            "redriveCount": 0,
            "stopDate": round(time.time() * 1000),
        }
        entry = {"Source": source, "DetailType": DETAIL_TYPE, "Detail": json.dumps(detail)}
        [told] = self.events.put_events(Entries=[{**entry, "EventBusName": bus}])["Entries"]
        code = told.get("ErrorCode")
        return None if code is None else str(code)

    def make_bus(self) -> str:
        name = f"bus-{uuid.uuid4()}"
        self.events.create_event_bus(Name=name)
        return name

    def make_rule(self, *, source: str) -> None:
        """A rule that sends events of this source to the reaper's queue."""
        name = f"fairlock-reaper-{uuid.uuid4().hex[:24]}"
        pattern = json.dumps({"source": [source]})
        self.events.put_rule(Name=name, EventPattern=pattern)
        queue = self.deployment.outputs["Fairlock"]["ReapQueueArn"]
        self.events.put_targets(Rule=name, Targets=[{"Id": "reaper", "Arn": queue}])

    def keep_events(self) -> str:
        """An archive of all status events from now on; its ARN."""
        name = f"archive-{uuid.uuid4()}"
        pattern = json.dumps({"detail-type": [DETAIL_TYPE]})
        made = self.events.create_archive(
            ArchiveName=name, EventSourceArn=self._bus_arn(), EventPattern=pattern
        )
        return str(made["ArchiveArn"])

    def bring_again(self, archive: str) -> None:
        """A replay of all that the archive has, to the bus that it came from."""
        self.events.start_replay(
            ReplayName=f"replay-{uuid.uuid4()}",
            EventSourceArn=archive,
            EventStartTime=time.time() - A_DAY_SECONDS,
            EventEndTime=time.time() + A_DAY_SECONDS,
            Destination={"Arn": self._bus_arn()},
        )

    def hear(self, pattern: Mapping[str, Any]) -> str:
        """A queue that gets the events of this pattern; its URL."""
        queues: Any = self.deployment.aws.client("sqs")
        url = queues.create_queue(QueueName=f"hears-{uuid.uuid4()}")["QueueUrl"]
        attributes = queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        arn = attributes["Attributes"]["QueueArn"]
        allowed = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        queues.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
        rule = f"hears-{uuid.uuid4()}"
        self.events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
        self.events.put_targets(Rule=rule, Targets=[{"Id": "ears", "Arn": arn}])
        return str(url)

    def has_heard(self, url: str, execution: str) -> bool:
        queues: Any = self.deployment.aws.client("sqs")
        told = queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        details = [json.loads(message["Body"])["detail"] for message in told]
        return any(
            detail["executionArn"] == execution and detail["status"] == "ABORTED"
            for detail in details
        )

    def _bus_arn(self) -> str:
        return str(self.events.describe_event_bus(Name="default")["Arn"])

    def passes(self) -> int:
        return reap_passes(self.deployment)[self.execution]

    def has_failed(self) -> bool:
        """When the event of an end that was put later has arrived, and been served."""
        other = ContestedLock(self.deployment)
        second = other.start_inside("Stays", seconds=LONG_SECONDS)
        other.stop(second)
        wait_until(lambda: other.holders() == [], pause_seconds=QUICK_SECONDS)
        return self.passes() == 0 and self.contested.holders() == [self.execution]


@pytest.fixture
def forger(deployment: Deployment) -> Iterator[Forger]:
    forger = Forger(deployment)
    yield forger
    forger.contested.stop(forger.execution)


@pytest.mark.parametrize("source", ["aws.states", "aws.lambda"])
def test_no_one_may_put_events_in_the_name_of_aws(forger: Forger, source: str) -> None:
    assert forger.put(source=source) == REFUSED
    assert forger.has_failed()


@pytest.mark.parametrize("source", ["states", "AWS.states", "my.aws.states"])
def test_an_event_of_another_source_is_not_for_the_reaper(forger: Forger, source: str) -> None:
    assert forger.put(source=source) is None
    assert forger.has_failed()


def test_an_event_of_another_bus_is_not_for_the_reaper(forger: Forger) -> None:
    bus = forger.make_bus()
    assert forger.put(source="aws.states", bus=bus) == REFUSED
    assert forger.put(source="my.states", bus=bus) is None
    assert forger.has_failed()


def test_a_rule_of_others_may_not_send_to_the_reaper(forger: Forger) -> None:
    source = f"forged.{uuid.uuid4()}"
    forger.make_rule(source=source)
    assert forger.put(source=source) is None
    assert forger.has_failed()


def test_an_archive_that_brings_an_end_again_does_not_reach_the_reaper(forger: Forger) -> None:
    """The control is a rule of the same events that does not leave replays out: it is told."""
    archive = forger.keep_events()
    heard = forger.hear({"detail-type": [DETAIL_TYPE], "replay-name": [{"exists": True}]})
    other = ContestedLock(forger.deployment)
    dead = other.start_inside("Stays", seconds=LONG_SECONDS)
    other.stop(dead)
    wait_for_reap_passes(forger.deployment, [dead], least=2)
    forger.bring_again(archive)
    wait_until(lambda: forger.has_heard(heard, dead), pause_seconds=QUICK_SECONDS)
    assert forger.has_failed()
    assert reap_passes(forger.deployment)[dead] == 2


def test_control_the_event_of_aws_itself_frees_the_lock(forger: Forger) -> None:
    forger.contested.stop(forger.execution)
    wait_until(lambda: forger.contested.holders() == [], pause_seconds=QUICK_SECONDS)
    wait_until(lambda: forger.passes() > 0, pause_seconds=QUICK_SECONDS)


# A distributed Map: each child is an owner of its own, and its locks end with it.

TOO_MANY = "States.ExceedToleratedFailureThreshold"


@pytest.mark.parametrize("which", FAILING_CHILDREN)
def test_what_aborted_children_held_and_waited_for_is_free_long_before_their_leases_end(
    runs: ScenarioRuns, which: str
) -> None:
    children: Siblings = runs.only(which)
    assert children.ended is not None
    told = {"that fails": ("FAILED", TOO_MANY), "that is stopped": ("ABORTED", None)}
    assert (children.ended.status, children.ended.error) == told[which]
    assert children.seconds < LEASE.to_seconds() / 2


def test_a_tolerated_failure_releases_its_lock_and_leaves_the_other_children_alone(
    runs: ScenarioRuns,
) -> None:
    children: Children = runs.only("that tolerates")
    assert children.ended.status == "SUCCEEDED"
    assert children.left == (0, 0)
    assert children.seconds < LEASE.to_seconds() / 2


def test_each_child_holds_under_the_arn_of_its_own_execution(runs: ScenarioRuns) -> None:
    children: Children = runs.only("that tolerates")
    assert len(set(children.owners)) == len(children.owners) == 2
    assert all("/Each:" in owner for owner in children.owners)


def test_a_child_of_which_no_event_tells_keeps_its_lock_for_its_lease_and_no_longer(
    runs: ScenarioRuns,
) -> None:
    """What holds if AWS sends no events of children, whose own status is asked for instead."""
    children: Children = runs.only("that no event tells of")
    assert children.ended.error == TOO_MANY
    assert children.seconds < 10 * stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000


@pytest.mark.parametrize("machine", REDRIVEN)
def test_iterations_branches_and_children_that_are_redriven_wait_and_work_again(
    runs: ScenarioRuns, machine: str
) -> None:
    children: Children = runs.only(f"redriven {machine}")
    assert children.ended.status == "SUCCEEDED"
    assert children.left == (0, 0)


@pytest.mark.parametrize(("which", "status"), [("inner", "FAILED"), ("outer", "ABORTED")])
def test_each_of_two_nested_workflows_loses_its_own_lock_with_its_own_end(
    runs: ScenarioRuns, which: str, status: str
) -> None:
    nested: Children = runs.only(f"nested, the {which} one is stopped")
    assert nested.ended.status == status
    assert len(set(nested.owners)) == 2
    assert nested.seconds < LEASE.to_seconds() / 2


# When an iteration fails, the locks of its siblings end with their workflow, as documented.


@pytest.mark.parametrize("which", FAILING_BRANCHES)
def test_what_its_siblings_held_and_waited_for_is_free_long_before_their_leases_end(
    runs: ScenarioRuns, which: str
) -> None:
    siblings: Siblings = runs.only(which)
    assert siblings.ended is not None
    assert (siblings.ended.status, siblings.ended.error) == ("FAILED", ERROR)
    assert siblings.seconds < LEASE.to_seconds() / 2


def test_control_what_is_handed_to_a_stopped_one_of_a_workflow_that_goes_on_ends_with_its_lease(
    runs: ScenarioRuns,
) -> None:
    siblings: Siblings = runs.only("handed, and it goes on")
    assert siblings.seconds > PLAIN_LEASE_SECONDS
    assert siblings.seconds < 10 * stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000) / 1000


def test_two_services_over_one_table_free_each_lock_once_and_serve_the_next(
    runs: ScenarioRuns,
) -> None:
    """Both reapers make their passes over the same claims."""
    siblings: Siblings = runs.only("two services")
    assert siblings.held == (1, 1)
    assert siblings.ended is not None
    assert siblings.ended.status == "SUCCEEDED"


# A redriven workflow waits again for its lock, and takes nothing from those who came since.


@pytest.mark.parametrize("where", GUARDED)
def test_wherever_it_was_stopped_it_works_under_its_lock_and_leaves_nothing(
    runs: ScenarioRuns, where: str
) -> None:
    redriven: Redriven = runs.only(where)
    assert (redriven.ended.status, redriven.ended.error) == ("SUCCEEDED", None)
    assert redriven.beside_seconds == 0
    assert (redriven.holders, redriven.waiters) == ([], [])


@pytest.mark.parametrize("where", UNGUARDED)
def test_control_its_work_is_repeated_beside_another_owner_as_documented(
    runs: ScenarioRuns, where: str
) -> None:
    """So the measurement finds an overlap where there is one: no guard re-enters its work."""
    redriven: Redriven = runs.only(where)
    assert redriven.beside_seconds > 1


@pytest.mark.parametrize("where", UNGUARDED)
def test_even_then_its_release_leaves_the_lock_to_the_other_owner(
    runs: ScenarioRuns, where: str
) -> None:
    redriven: Redriven = runs.only(where)
    assert (redriven.ended.status, redriven.other_kept) == ("SUCCEEDED", True)
    assert (redriven.holders, redriven.waiters) == ([], [])
