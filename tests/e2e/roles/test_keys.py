"""Locks of executions whose data a customer's key encrypts, where permissions are enforced."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.durable.executions import DurableLock, take, without_events
from tests.e2e.roles.identities import Identities

LEASE_SECONDS = 2
FALLBACK_SECONDS = 20
MACHINE_KEY = "arn:aws:kms:us-east-1:000000000000:key/12345678-1234-1234-1234-123456789012"
STAYS = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 600, "End": True}}}


@pytest.fixture
def lock(enforcing: Deployment, tmp_path: Path) -> DurableLock:
    return DurableLock(enforcing, tmp_path, stack="Fairlock")


def keyed_execution(deployment: Deployment) -> str:
    """A workflow that stays, of a machine with a key of its own."""
    workflows = deployment.aws.client("stepfunctions")
    machine = workflows.create_state_machine(
        name=f"keyed-{uuid.uuid4()}",
        definition=json.dumps(STAYS),
        roleArn=deployment.outputs["Fairlock"]["GuardRoleArn"],
        encryptionConfiguration={"type": "CUSTOMER_MANAGED_KMS_KEY", "kmsKeyId": MACHINE_KEY},
    )["stateMachineArn"]
    return str(workflows.start_execution(stateMachineArn=machine)["executionArn"])


def test_a_dead_execution_of_a_machine_with_a_key_loses_its_lock_without_a_grant_on_the_key(
    enforcing: Deployment,
) -> None:
    execution, name = keyed_execution(enforcing), f"keyed/{uuid.uuid4()}"
    held: dict[str, Any] = {"lock_name": name, "owner_id": str(uuid.uuid4())}
    with without_events(enforcing, "aws.states"):
        asked = {**held, "execution_arn": execution, "lease_seconds": LEASE_SECONDS}
        assert enforcing.invoke("Acquire", **asked)["acquired"] is True
        enforcing.stop(execution)
        take(enforcing, name)


def test_control_the_functions_may_not_read_the_data_of_such_an_execution(
    enforcing: Deployment, identities: Identities
) -> None:
    execution = keyed_execution(enforcing)
    functions = identities.client("Acquire", "stepfunctions")
    with pytest.raises(ClientError, match="KmsAccessDenied"):
        functions.describe_execution(executionArn=execution)
    known = functions.describe_execution(executionArn=execution, includedData="METADATA_ONLY")
    assert known["status"] == "RUNNING"


def test_a_dead_execution_of_a_durable_function_with_a_key_loses_its_lock(
    lock: DurableLock,
) -> None:
    """Of an execution that is over nothing is decrypted, so no grant on the key is needed."""
    with without_events(lock.deployment, "aws.lambda"):
        terms = {"function": "KeyUnknown", "stays": True, "lease": LEASE_SECONDS}
        execution = lock.start_inside("dies", **terms)
        lock.stop(execution)
        take(lock.deployment, lock.lock)


def woken_after(lock: DurableLock, function: str) -> float:
    """Seconds from a release until an execution that waits in the queue has the lock."""
    first = {"lock_name": lock.lock, "owner_id": str(uuid.uuid4())}
    assert lock.deployment.invoke("Acquire", **first, lease_seconds=600)["acquired"] is True
    execution = lock.start_behind("waits", function=function, fallback=FALLBACK_SECONDS)
    wait_until(lambda: lock.invocations(execution) == 1)  # It sleeps; nothing of it is under way.
    began = time.monotonic()
    lock.deployment.invoke("Release", **first)
    assert lock.ended(execution)["Status"] == "SUCCEEDED"
    return time.monotonic() - began


def test_a_durable_function_with_a_key_is_woken_by_functions_that_may_use_the_key(
    lock: DurableLock,
) -> None:
    assert woken_after(lock, "Keyed") < FALLBACK_SECONDS / 2


def test_control_without_a_grant_on_the_key_it_learns_of_the_lock_at_its_fallback(
    lock: DurableLock,
) -> None:
    assert woken_after(lock, "KeyUnknown") > FALLBACK_SECONDS / 2
