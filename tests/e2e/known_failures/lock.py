"""One lock of the deployed service, workflows that want it, and contenders that do not wait."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import jsii
from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.protocol.schema import lock_key
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment, Ended, Json, wait_until

PAUSE_SECONDS = 0.3
"""Many scenarios poll at the same time; polling more often would slow them down."""
MOST_TRIES = 3
"""For those who are to be inside at once, and whom a busy machine may have begun one by one."""


@dataclass(frozen=True)
class Knocks:
    """What one contender after the other was told until one was granted the lock.

    Attributes:
        granted_at_ms: when the grant was told: not before it was given, as the service's own clock
            would be, which is read when a call begins.
        leases_seen: the ends of the holder's lease, as they were told: more than one if it was
            extended meanwhile.
    """

    granted_at_ms: int
    leases_seen: list[str]


@dataclass(frozen=True)
class Lock:
    """A name that no other test uses."""

    deployment: Deployment
    name: str = field(default_factory=lambda: f"known-failure/{uuid.uuid4()}")

    def start(self, machine: str, **inputs: object) -> str:
        """Starts a machine of the stack `KnownFailures` that wants this lock."""
        return self.deployment.start(f"KnownFailure{machine}", {"lock": self.name, **inputs})

    def run(self, machine: str, **inputs: object) -> Ended:
        return self.ended(self.start(machine, **inputs))

    def ended(self, execution_arn: str) -> Ended:
        return self.deployment.ended(execution_arn, pause_seconds=PAUSE_SECONDS)

    def start_inside(self, machine: str, **inputs: object) -> str:
        """Starts a machine and sees it into the middle of its work."""
        execution = self.start(machine, **inputs)
        wait_until(
            lambda: "Stay" in self.deployment.states_entered(execution),
            pause_seconds=PAUSE_SECONDS,
        )
        return execution

    def ask(self, **terms: object) -> Json:
        """What a contender is told that never asked before."""
        owner_id = str(uuid.uuid4())
        return self.deployment.invoke("Acquire", lock_name=self.name, owner_id=owner_id, **terms)

    def take(self, **terms: object) -> str:
        """Acquires by hand; answers the owner id."""
        answer = self.ask(**terms)
        assert answer["acquired"] is True, answer
        return str(answer["owner_id"])

    def release(self, owner_id: str) -> None:
        answer = self.deployment.invoke("Release", lock_name=self.name, owner_id=owner_id)
        assert answer["released"] is True, answer

    def knock(self) -> Knocks:
        """One contender after the other asks, until one is granted the lock."""
        answers: list[Json] = []

        def is_granted() -> bool:
            answers.append(self.ask())
            return bool(answers[-1]["acquired"])

        wait_until(is_granted, pause_seconds=PAUSE_SECONDS)
        granted_at_ms = round(time.time() * 1000)
        *refusals, _ = answers
        leases = {holder["expires_at"] for refusal in refusals for holder in refusal["holders"]}
        return Knocks(granted_at_ms=granted_at_ms, leases_seen=sorted(leases))

    def state(self) -> LockState:
        return read_state(self.item())

    def item(self) -> Json:
        """The lock's item, empty if there is none."""
        found = self.dynamodb.get_item(
            TableName=self.table_name, Key=lock_key(self.name), ConsistentRead=True
        )
        return dict(found.get("Item", {}))

    @property
    def table_name(self) -> str:
        return self.deployment.outputs["Fairlock"]["LockTableName"]

    @property
    def dynamodb(self) -> Any:  # noqa: ANN401 - a boto3 client
        return _dynamodb(self.deployment.aws)


@cache
def _dynamodb(aws: LocalAws) -> Any:  # noqa: ANN401 - a boto3 client
    """One for all locks: making one takes longer than what a test does with it."""
    return aws.client("dynamodb")


def most_inside(spans: Iterable[Json]) -> int:
    """How many were inside at the same time."""
    spans = list(spans)
    steps = sorted(
        [(span["began_ms"], 1) for span in spans] + [(span["ended_ms"], -1) for span in spans]
    )
    return max(itertools.accumulate(step for _, step in steps))


# What the machines are made of: work that needs no function, and a chain of the wrong kind.

LEASE_SECONDS: Final = 2

INPUT: Final = "{% $states.input %}"
LOCK: Final = "{% $states.input.lock %}"
REPLY: Final = "{% $states.result.Payload %}"
THIS_EXECUTION: Final = "{% $states.context.Execution.Id %}"

OWNER_OF_THE_EXECUTION: Final = "{% $states.context.Execution.Name %}"
"""As good as its ARN, which may be longer than an owner id."""
OWNER_OF_THE_CALL: Final = "{% $uuid() %}"
"""In the arguments of a call: another one whenever the call is repeated."""


def call(
    scope: Construct,
    name: str,
    function: lambda_.IFunction,
    **props: Any,  # noqa: ANN401 - LambdaInvoke's
) -> tasks.LambdaInvoke:
    """A call that is repeated only if the caller says so."""
    return tasks.LambdaInvoke.jsonata(
        scope, name, lambda_function=function, retry_on_service_exceptions=False, **props
    )


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """In which single way a chain is wrong. The default is wrong in one way: it catches nothing.

    Attributes:
        owner_id: who it says it is.
        told_execution: whether the service is told which execution the lease belongs to.
        outputs: what leaves the chain; None is what the release call left.
    """

    owner_id: str = OWNER_OF_THE_EXECUTION
    told_execution: bool = True
    outputs: str | None = "{% {'work': $states.input, 'release': $states.result.Payload} %}"


class Chain(sfn.StateMachineFragment):
    """acquire → acquired? → work → release, and round again without end while it is not.

    What people write who have not met 05's table yet.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        acquire: lambda_.IFunction,
        release: lambda_.IFunction,
        work: sfn.IChainable,
        mistake: Mistake,
    ) -> None:
        super().__init__(scope, construct_id)
        request = {
            "lock_name": LOCK,
            "owner_id": mistake.owner_id,
            "owner_name": THIS_EXECUTION,
            **({"execution_arn": THIS_EXECUTION} if mistake.told_execution else {}),
            "lease_seconds": LEASE_SECONDS,
        }
        self._acquire = call(
            self,
            "Acquire",
            acquire,
            payload=sfn.TaskInput.from_object(request),
            outputs=INPUT,
            assign={"lock": REPLY},
        )
        self._acquire.add_retry(errors=["ConnectionError"], interval=Duration.seconds(1))
        owner = {"lock_name": "{% $lock.lock_name %}", "owner_id": "{% $lock.owner_id %}"}
        outputs = {"outputs": mistake.outputs} if mistake.outputs else {}
        self._release = call(
            self, "Release", release, payload=sfn.TaskInput.from_object(owner), **outputs
        )
        again = sfn.Wait.jsonata(self, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1)))
        acquired = sfn.Choice.jsonata(self, "Acquired?")
        inside = sfn.Chain.start(work).next(self._release)
        acquired.when(sfn.Condition.jsonata("{% $lock.acquired %}"), inside)
        acquired.otherwise(again.next(self._acquire))
        self._acquire.next(acquired)

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        return self._acquire

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        return [self._release]
