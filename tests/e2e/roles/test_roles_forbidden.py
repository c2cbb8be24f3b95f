"""What each role may not do is denied: every request with every role, under enforcement."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.roles.calls import AnyCall, calls
from tests.e2e.roles.identities import Identities
from tests.e2e.roles.stack import ROLES

ADMINISTRATOR = "Administrator"
JUDGED = [role for role in ROLES if role != ADMINISTRATOR]
FEWEST_FORBIDDEN = 40


@pytest.fixture(scope="session")
def identities(enforcing: Deployment) -> Identities:
    return Identities(enforcing)


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
    identities: Identities,
    all_calls: list[AnyCall],
    role: str,
    record_property: Callable[[str, object], None],
) -> None:
    forbidden = [call for call in all_calls if role not in call.allowed]
    assert len(forbidden) >= FEWEST_FORBIDDEN
    assert judged(identities, role, all_calls) == ([], [])
    allowed = len(all_calls) - len(forbidden)
    figures = f"role {role}: {len(forbidden)} forbidden requests denied, {allowed} allowed"
    record_property("figures", figures)


WAKE_WAITERS = {"Acquire", "Heartbeat", "Release", "Reap", "ForceRelease", "SetLimit"}
"""They may decrypt with the key that `grant_durable` names; `test_keys` shows what for."""


@pytest.mark.parametrize("role", JUDGED)
def test_a_role_is_granted_no_action_but_those_of_its_requests(
    identities: Identities, all_calls: list[AnyCall], role: str
) -> None:
    needed = {call.action for call in all_calls if role in call.allowed}
    of_a_key = {"kms:Decrypt"} if role in WAKE_WAITERS else set()
    assert identities.granted(role) == needed | of_a_key


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
    granted = identities.granted("Heartbeat")
    policies.delete_role_policy(**policy)
    assert {"dynamodb:Scan", "states:Stop*"} <= granted
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
