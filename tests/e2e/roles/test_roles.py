"""The roles suffice for what the handlers do, on an embedded AWS that enforces them."""

from __future__ import annotations

import json
import uuid

from tests.e2e.deployment import Deployment, Json, wait_until

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


def test_a_lock_may_be_seen_and_released_by_force_without_the_table(
    enforcing: Deployment,
) -> None:
    first, second = owner("stuck"), owner("stuck")
    token = enforcing.invoke("Acquire", **first)["fencing_token"]
    ticket = enforcing.invoke("Acquire", **second, queue=True)["ticket"]
    [listed] = enforcing.invoke("Inspect", prefix="stuck")["locks"]
    described = enforcing.invoke("Inspect", lock_name="stuck")
    for found in (listed, described):
        assert [holder["fencing_token"] for holder in found["holders"]] == [token]
        assert found["waiters"]["count"] == 1
    who = {"requested_by": "olga", "reason": "hangs"}
    asked = {"lock_name": "stuck", "fencing_token": token}
    assert enforcing.invoke("ForceRelease", **asked, **who) == {"released": True, **asked}
    assert enforcing.invoke("Heartbeat", **first)["renewed"] is False
    assert enforcing.invoke("Acquire", **second, queue=True, ticket=ticket)["acquired"] is True


def test_a_lock_may_be_paused_and_resumed_without_the_table(enforcing: Deployment) -> None:
    waiter, who = owner("frozen"), {"requested_by": "olga", "reason": "freeze"}
    paused = {"lock_name": "frozen", "limit": 0}
    assert enforcing.invoke("SetLimit", **paused, **who) == paused
    answer = enforcing.invoke("Acquire", **waiter, queue=True)
    assert (answer["reason"], answer["ceiling"]["requested_by"]) == ("QUEUED", "olga")
    assert enforcing.invoke("SetLimit", **{**paused, "limit": None}, **who)["limit"] is None
    again = enforcing.invoke("Acquire", **waiter, queue=True, ticket=answer["ticket"])
    assert again["acquired"] is True


def test_a_waiter_may_leave_the_queue(enforcing: Deployment) -> None:
    holder, waiter = owner("left"), owner("left")
    enforcing.invoke("Acquire", **holder)
    ticket = enforcing.invoke("Acquire", **waiter, queue=True)["ticket"]
    assert enforcing.invoke("Release", **waiter, ticket=ticket)["released"] is True


def test_the_end_of_a_workflow_may_be_looked_up(enforcing: Deployment) -> None:
    dead = owner("overdue")
    enforcing.invoke("Acquire", **dead, lease_seconds=1, execution_arn=ENDED_EXECUTION)
    heir = owner("overdue")
    wait_until(lambda: bool(enforcing.invoke("Acquire", **heir)["acquired"]))


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
    functions = enforcing.aws.client("lambda")
    [name] = [
        function["FunctionName"]
        for function in functions.list_functions()["Functions"]
        if function["Handler"] == "lambdas.reap.handler"
    ]
    message = {"execution_arn": execution_arn, "redrives": 0, "second_pass": False}
    record = {"messageId": "1", "body": json.dumps(message), "eventSource": "aws:sqs"}
    response = functions.invoke(FunctionName=name, Payload=json.dumps({"Records": [record]}))
    answer: Json = json.load(response["Payload"])
    return answer


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
