"""One lock of the deployed service, workflows that want it, and contenders that do not wait."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

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
