"""A client that may use the locks of one team is denied those of others, by DynamoDB itself."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from fairlock import LockClient, LockStoreMisconfigured
from tests.e2e.deployment import Deployment, wait_until
from tests.e2e.roles.identities import TRUST
from tests.e2e.roles.test_keys import keyed_execution

MakeClient = Callable[[str], LockClient]


@pytest.fixture
def client_of(enforcing: Deployment) -> Iterator[MakeClient]:
    """Clients with the credentials of a role."""
    aws, outputs = enforcing.aws, enforcing.outputs["Fairlock"]
    with contextlib.ExitStack() as stack:

        def made(role: str) -> LockClient:
            arn = outputs[f"{role}RoleArn"]
            name = arn.rpartition("/")[2]
            aws.client("iam").update_assume_role_policy(RoleName=name, PolicyDocument=TRUST)
            answer = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="client")
            given = answer["Credentials"]
            keys: Any = {
                "aws_access_key_id": given["AccessKeyId"],
                "aws_secret_access_key": given["SecretAccessKey"],
                "aws_session_token": given["SessionToken"],
                "region_name": "us-east-1",
                "endpoint_url": aws.endpoint_url,
            }
            clients: Any = {
                name: boto3.client(service, **keys)  # type: ignore[call-overload]  # one or the other
                for name, service in (("client", "dynamodb"), ("stepfunctions", "stepfunctions"))
            }
            return stack.enter_context(LockClient(outputs["LockTableName"], max_wait=30, **clients))

        yield made


def use(locks: LockClient, other: LockClient, name: str) -> None:
    """Every request that a client makes of its own table."""
    with locks.hold(name, data={"step": 1}) as lock:
        assert other.try_acquire(name) is None
        lock.heartbeat()
    token = other.acquire(name).fencing_token
    assert locks.describe(name) is not None
    locks.force_release(name, fencing_token=token, reason="test")
    locks.pace(name, rate=(100, 1))
    locks.set_limit(name, 2, reason="test")
    locks.resume(name)


def test_a_team_uses_its_own_names(client_of: MakeClient) -> None:
    locks = client_of("TeamA")
    use(locks, client_of("TeamA"), f"team-a/{uuid.uuid4()}")


def test_a_team_waits_behind_a_workflow_whose_lease_is_over(
    client_of: MakeClient, enforcing: Deployment
) -> None:
    """An item of no team tells whether its work is over: the claim, which is read first."""
    name, execution = f"team-a/{uuid.uuid4()}", keyed_execution(enforcing)
    held = {"owner_id": str(uuid.uuid4()), "execution_arn": execution, "lease_seconds": 1}
    assert enforcing.invoke("Acquire", lock_name=name, **held)["acquired"]
    locks = client_of("TeamA")
    first = lease_ends(enforcing, name)
    wait_until(lambda: locks.try_acquire(name) or lease_ends(enforcing, name) > first)
    assert locks.try_acquire(name) is None  # The client has asked, and extended the lease.
    enforcing.stop(execution)
    assert locks.acquire(name).fencing_token


def lease_ends(deployment: Deployment, name: str) -> str:
    """When the lease of the holder ends, as text."""
    found = deployment.invoke("Inspect", lock_name=name)
    return str(found["holders"][0]["expires_at"])


@pytest.mark.parametrize("name", ["team-b/x", "team-a", "TEAM-A/x", "x/team-a/"])
def test_a_team_is_denied_all_other_names(client_of: MakeClient, name: str) -> None:
    locks = client_of("TeamA")
    requests: dict[str, Callable[[], object]] = {
        "acquire": lambda: locks.acquire(name),
        "describe": lambda: locks.describe(name),
        "release": lambda: locks.release(name, "somebody-0123456789"),
        "force_release": lambda: locks.force_release(name, fencing_token=7, reason="test"),
        "pace": lambda: locks.pace(name, rate=(1, 1)),
        "pause": lambda: locks.pause(name, reason="test"),
    }
    for request in requests.values():
        with pytest.raises(LockStoreMisconfigured, match="AccessDenied"):
            request()


def test_a_team_cannot_read_the_whole_table(client_of: MakeClient) -> None:
    with pytest.raises(LockStoreMisconfigured, match="AccessDenied"):
        next(client_of("TeamA").list("team-a/"))


def test_control_a_client_without_a_prefix_uses_any_name(client_of: MakeClient) -> None:
    locks = client_of("Client")
    use(locks, client_of("Client"), f"team-b/{uuid.uuid4()}")
