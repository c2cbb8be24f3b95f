"""Each role may do its own part, and nothing else."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from fairlock import LockClient, LockStoreMisconfigured
from tests.e2e.deployment import Deployment, Json, wait_until
from tests.e2e.roles.calls import AnyCall, calls
from tests.e2e.roles.identities import ROLES, Identities
from tests.e2e.roles.test_keys import keyed_execution

# The roles suffice for what the handlers do, on an embedded AWS that enforces them.

ENDED_EXECUTION = "arn:aws:states:us-east-1:000000000000:execution:nothing:gone"


def owner(lock_name: str) -> Json:
    return {"lock_name": lock_name, "owner_id": str(uuid.uuid4())}


def test_holding_and_the_queue_need_no_more_than_the_roles_allow(enforcing: Deployment) -> None:
    first, second = owner("shop"), owner("shop")
    assert enforcing.invoke("Acquire", **first)["acquired"] is True
    queued = enforcing.invoke("Acquire", **second, queue=True)
    assert queued["reason"] == "QUEUED"
    assert enforcing.invoke("Heartbeat", **first)["renewed"] is True
    assert enforcing.invoke("Release", **first)["released"] is True
    handed_over = enforcing.invoke("Acquire", **second, queue=True, ticket=queued["ticket"])
    assert handed_over["acquired"] is True
    assert enforcing.invoke("Release", **second)["released"] is True


def test_a_lock_may_be_paused_seen_and_released_by_force_without_the_table(
    enforcing: Deployment,
) -> None:
    first, second = owner("stuck"), owner("stuck")
    token = enforcing.invoke("Acquire", **first)["fencing_token"]
    ticket = enforcing.invoke("Acquire", **second, queue=True)["ticket"]
    [listed] = enforcing.invoke("Inspect", prefix="stuck")["locks"]
    for found in (listed, enforcing.invoke("Inspect", lock_name="stuck")):
        assert [holder["fencing_token"] for holder in found["holders"]] == [token]
        assert found["waiters"]["count"] == 1
    who = {"requested_by": "olga", "reason": "hangs"}
    paused = {"lock_name": "stuck", "limit": 0}
    assert enforcing.invoke("SetLimit", **paused, **who) == paused
    asked = {"lock_name": "stuck", "fencing_token": token}
    assert enforcing.invoke("ForceRelease", **asked, **who) == {"released": True, **asked}
    assert enforcing.invoke("Heartbeat", **first)["renewed"] is False
    again = {**second, "queue": True, "ticket": ticket}
    assert enforcing.invoke("Acquire", **again)["ceiling"]["requested_by"] == "olga"
    assert enforcing.invoke("SetLimit", **{**paused, "limit": None}, **who)["limit"] is None
    assert enforcing.invoke("Acquire", **again)["acquired"] is True
    leaves = owner("stuck")
    ticket = enforcing.invoke("Acquire", **leaves, queue=True)["ticket"]
    assert enforcing.invoke("Release", **leaves, ticket=ticket)["released"] is True


def test_what_an_ended_workflow_left_may_be_reaped_and_taken_again(enforcing: Deployment) -> None:
    """Every request of the reaper and of a heartbeat, with a hand-off and a redrive."""
    of_workflow = {"execution_arn": ENDED_EXECUTION}
    dead, waiting, renewed = owner("handed-on"), owner("handed-on"), owner("renewed")
    for acquisition in (dead, renewed):
        assert enforcing.invoke("Acquire", **acquisition, **of_workflow)["acquired"] is True
    ticket = enforcing.invoke("Acquire", **waiting, queue=True)["ticket"]
    assert reap(enforcing, ENDED_EXECUTION) == {"batchItemFailures": []}
    assert enforcing.invoke("Acquire", **waiting, queue=True, ticket=ticket)["acquired"] is True
    heartbeat = {**renewed, **of_workflow, "task_token": "of a state that is over"}
    outcomes = [enforcing.invoke("Heartbeat", **heartbeat)["kept"] for _ in range(2)]
    assert outcomes == ["REACQUIRED", "RENEWED"]
    assert (
        enforcing.invoke("Release", **renewed, **of_workflow, keep_alive=True)["released"] is True
    )


def reap(enforcing: Deployment, execution_arn: str) -> Json:
    message = {"execution_arn": execution_arn, "redrives": 0, "second_pass": False}
    record = {"messageId": "1", "body": json.dumps(message), "eventSource": "aws:sqs"}
    return enforcing.invoke("Reap", Records=[record])


def test_a_role_without_its_policy_is_noticed(enforcing: Deployment) -> None:
    function = enforcing.outputs["Fairlock"]["HeartbeatFunctionName"]
    functions, identities = enforcing.aws.client("lambda"), enforcing.aws.client("iam")
    role = functions.get_function(FunctionName=function)["Configuration"]["Role"].split("/")[-1]
    names = identities.list_role_policies(RoleName=role)["PolicyNames"]
    # Beside it is the policy of the keys of durable functions.
    [name] = [each for each in names if "DefaultPolicy" in each]
    policy = {"RoleName": role, "PolicyName": name}
    document = identities.get_role_policy(**policy)["PolicyDocument"]
    identities.delete_role_policy(**policy)
    response = functions.invoke(FunctionName=function, Payload=json.dumps(owner("shop")))
    identities.put_role_policy(**policy, PolicyDocument=json.dumps(document))
    assert "AccessDenied" in json.load(response["Payload"])["errorMessage"]


# A client that may use the locks of one team is denied those of others, by DynamoDB itself.

MakeClient = Callable[[str], LockClient]


@pytest.fixture
def client_of(enforcing: Deployment, identities: Identities) -> Iterator[MakeClient]:
    """Clients with the credentials of a role; one role at a time."""
    with contextlib.ExitStack() as stack:

        def made(role: str) -> LockClient:
            clients = {
                "client": identities.client(role, "dynamodb"),
                "stepfunctions": identities.client(role, "stepfunctions"),
            }
            return stack.enter_context(LockClient(enforcing.table_name, max_wait=30, **clients))

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

    def extends_the_lease() -> bool:
        assert locks.try_acquire(name) is None
        return lease_ends(enforcing, name) > first

    wait_until(extends_the_lease)
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
        "release": lambda: locks.release(name, "stranger-0123456789"),
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


# What each role may not do is denied: every request with every role, under enforcement.
# This comes last: its control may do everything, and destroys the service.

ADMINISTRATOR = "Administrator"
JUDGED = [role for role in ROLES if role != ADMINISTRATOR]
FEWEST_FORBIDDEN = 40


@pytest.fixture(scope="session")
def all_calls(enforcing: Deployment) -> list[AnyCall]:
    return calls(enforcing.outputs["Fairlock"])


def judged(
    identities: Identities, role: str, all_calls: list[AnyCall]
) -> tuple[list[str], list[str]]:
    """The requests that the role may make and ought not to, and those that it wants in vain."""
    denied = {str(call): identities.denied(role, call) for call in all_calls}
    too_much = [str(c) for c in all_calls if role not in c.allowed and not denied[str(c)]]
    too_little = [str(c) for c in all_calls if role in c.allowed and denied[str(c)]]
    return too_much, too_little


@pytest.mark.parametrize("role", JUDGED)
def test_a_role_may_make_its_requests_and_no_others(
    identities: Identities, all_calls: list[AnyCall], role: str
) -> None:
    forbidden = [call for call in all_calls if role not in call.allowed]
    assert len(forbidden) >= FEWEST_FORBIDDEN
    assert judged(identities, role, all_calls) == ([], [])


def test_control_a_widened_policy_is_noticed(
    enforcing: Deployment, identities: Identities, all_calls: list[AnyCall]
) -> None:
    statements = [
        {"Effect": "Allow", "Action": "dynamodb:Scan", "Resource": "*"},
        {"Effect": "Allow", "Action": "states:Stop*", "Resource": "*"},
    ]
    role = enforcing.outputs["Fairlock"]["HeartbeatRoleArn"].rpartition("/")[2]
    policies, policy = enforcing.aws.client("iam"), {"RoleName": role, "PolicyName": "wider"}
    policies.put_role_policy(**policy, PolicyDocument=json.dumps({"Statement": statements}))
    too_much, too_little = judged(identities, "Heartbeat", all_calls)
    policies.delete_role_policy(**policy)
    assert too_little == []
    assert too_much == [
        "dynamodb.scan on items of the lock table",
        "dynamodb.scan on items of another table",
        "stepfunctions.stop_execution on workflows",
    ]


def test_control_an_administrator_may_all_but_send_to_the_reaper(
    identities: Identities, all_calls: list[AnyCall]
) -> None:
    """The queue's policy denies even that. Runs last: the requests delete the service."""
    denied = [str(call) for call in all_calls if identities.denied(ADMINISTRATOR, call)]
    assert denied == ["sqs.send_message on the reaper's queue"]
