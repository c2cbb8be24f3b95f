"""A service that a stack shares, found by the stack's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Environment, NestedStack, Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, LockService, MetricName
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import functions_by_arn, machine, role
from tests.unit.cdk.template import (
    Json,
    actions,
    durable_function,
    listed,
    properties,
    resources,
    short,
    statements,
    template_of,
)

HERE = Environment(account="123456789012", region="us-east-1")
BY_A_GUARD = ["AcquireFunctionArn", "ReleaseFunctionArn"]
ALWAYS = [*BY_A_GUARD, "HeartbeatFunctionArn", "LockTableName", "LogGroupNames", "ServiceName"]
OF_REAPER = ["ReapDeadLetterQueueArn", "ReapFunctionArn", "ReapQueueArn", "WatchesEveryMachine"]
OF_ADMINISTRATORS = {
    "grant_inspect": "InspectFunctionArn",
    "grant_force_release": "ForceReleaseFunctionArn",
    "grant_set_limit": "SetLimitFunctionArn",
}


@pytest.fixture
def user(app: App) -> Stack:
    return Stack(app, "User", env=HERE)


@pytest.fixture
def locks(user: Stack) -> SharedLockService:
    return LockService.from_stack(user, "Locks", stack_name="Fairlock")


def read_by(stack: Stack) -> list[str]:
    """The parameters of the Parameter Store that a stack reads when it is deployed."""
    found = template_of(stack)["Parameters"].values()
    names = [each["Default"] for each in found if each["Type"].startswith("AWS::SSM::Parameter")]
    prefix = "/fairlock/Fairlock/"
    return sorted(name.removeprefix(prefix) for name in names if name.startswith("/fairlock/"))


def shared_by(template: Json) -> dict[str, object]:
    return {each["Name"]: each["Value"] for each in properties(template, "AWS::SSM::Parameter")}


def names_shared_by(stack: Stack) -> list[str]:
    prefix = f"/fairlock/{stack.stack_name}/"
    return sorted(name.removeprefix(prefix) for name in shared_by(template_of(stack)))


def guard(stack: Stack, name: str, service: Any) -> LockGuard:  # noqa: ANN401 - any service
    work = sfn.Pass(stack, f"{name}Work")
    return LockGuard(stack, name, service=service, task=work, lock_name="x")


def test_the_stack_shares_outputs_log_groups_and_that_it_watches_all(lock_template: Json) -> None:
    groups = ("Acquire", "Heartbeat", "Release", "ReaperReap")
    logs = ",".join(f"<{function}Logs>" for function in groups)
    told = {name: short(output["Value"]) for name, output in lock_template["Outputs"].items()}
    expected = {**told, "LogGroupNames": logs, "WatchesEveryMachine": "true"}
    assert short(shared_by(lock_template)) == {
        f"/fairlock/Fairlock/{name}": expected[name] for name in (*ALWAYS, *OF_REAPER)
    }


def test_what_a_user_reads_is_what_the_stack_shares_and_no_export(
    user: Stack, locks: SharedLockService, lock_stack: Stack, lock_template: Json
) -> None:
    """So neither stack keeps the other one from being deployed."""
    locks.metric_dead_letters()
    locks.metric_dead_letters(statistic="Sum")
    locks.metric_oldest_event()
    locks.metric(MetricName.LOST)
    assert locks.reap_function is locks.reap_function
    assert locks.log_group_names
    assert locks.administration is None
    locks.grant_heartbeat(role(user))
    locks.grant_client(role(user, "Client"))
    locks.watch(machine(user, guard(user, "G", locks)))
    assert read_by(user) == names_shared_by(lock_stack) == sorted(ALWAYS + OF_REAPER)
    assert resources(template_of(user), "AWS::Events::Rule") == {}
    assert "Fn::ImportValue" not in json.dumps(template_of(user))
    assert not any("Export" in output for output in lock_template["Outputs"].values())


def test_a_guard_reads_two_parameters_and_without_from_stack_would_import_exports(
    app: App, user: Stack, locks: SharedLockService
) -> None:
    """CDK and cfn-lint warn of a parameter that a template does not use (W2001)."""
    direct = LockService(Stack(app, "Fairlock", env=HERE), "Locks", reaper=False)
    control = Stack(app, "Control", env=HERE)
    for stack, service in ((user, locks), (control, direct)):
        machine(stack, guard(stack, "Guard", service))
    assert read_by(user) == BY_A_GUARD
    assert "Fn::ImportValue" not in json.dumps(template_of(user))
    assert "Fn::ImportValue" in json.dumps(template_of(control))


def test_a_client_of_a_prefix_is_let_at_the_partitions_of_its_locks_and_at_single_claims(
    user: Stack, locks: SharedLockService
) -> None:
    """DynamoDB enforces it: tests/e2e/roles/test_keys.py.

    Without claims an acquire fails that asks whether the workflow that holds still runs.
    """
    client = role(user)
    for pattern in ("", "*", "team-?", "${aws:username}/", "a\n", 7):
        prefix: Any = pattern
        with pytest.raises(InvalidRequest, match=r"^prefix: must be the beginning of lock names"):
            locks.grant_client(client, prefix=prefix)
    locks.grant_client(client, prefix="team-a/")
    template = template_of(user)
    of_table = [each for each in statements(template) if "dynamodb" in str(each["Action"])]
    keys = {str(each["Action"]): each["Condition"] for each in of_table}

    def only(*patterns: str) -> Json:
        leading = "dynamodb:LeadingKeys"
        return {"ForAllValues:StringLike": {leading: [*patterns]}, "Null": {leading: "false"}}

    assert keys.pop("dynamodb:GetItem") == only("EXECUTION#*")
    assert list(keys.values()) == [only("LOCK#team-a/*", "PACE#team-a/*")]
    assert "dynamodb:Scan" not in actions(template)


def test_a_service_shares_what_it_has(app: App, own: Stack) -> None:
    other = Stack(app, "Other")
    LockService(own, "Locks", reaper=False).share()
    LockService(other, "Locks", durable=True, administration=True).share()
    assert names_shared_by(own) == sorted(ALWAYS)
    more = {*OF_ADMINISTRATORS.values(), "ServesEveryDurableFunction"}
    assert names_shared_by(other) == sorted({*ALWAYS, *OF_REAPER} | more)


def test_a_narrowed_service_does_not_tell_that_it_watches_all(app: App, own: Stack) -> None:
    watched = machine(own)
    first, later = Stack(app, "First"), Stack(app, "Later")
    narrowed, shared = LockService(first, "Locks"), LockService(later, "Locks")
    narrowed.watch(watched)
    narrowed.share()
    shared.share()
    shared.watch(watched)
    for stack in (first, later):
        assert names_shared_by(stack) == sorted({*ALWAYS, *OF_REAPER} - {"WatchesEveryMachine"})


def test_what_is_granted_by_itself_is_read_by_itself(app: App) -> None:
    """A durable function needs a service that serves every one."""
    durable = {"grant_durable": "ServesEveryDurableFunction"}
    read = {**OF_ADMINISTRATORS, **durable, "grant_pace": "PaceFunctionArn"}
    stacks = {grant: Stack(app, name, env=HERE) for grant, name in read.items()}
    for grant, stack in stacks.items():
        locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
        whom = durable_function(stack) if grant == "grant_durable" else role(stack)
        getattr(locks, grant)(whom)
    for grant, stack in stacks.items():
        assert read[grant] in read_by(stack)
        assert len(read_by(stack)) == 1 or grant == "grant_durable"


def test_one_service_of_a_stack_is_shared_and_has_outputs(own: Stack, lock_template: Json) -> None:
    locks = LockService(own, "Locks")
    locks.add_outputs()
    with pytest.raises(InvalidRequest, match=r"^add_outputs: must be called once in a stack"):
        locks.add_outputs()
    other = LockService(own, "Other", reaper=False)
    other.share()
    with pytest.raises(InvalidRequest, match=r"^share: must be called once in a stack"):
        locks.share()
    assert set(template_of(own)["Outputs"]) == set(lock_template["Outputs"])


def test_a_nested_service_has_no_name_and_without_request_tells_nothing(own: Stack) -> None:
    locks = LockService(NestedStack(own, "Nested"), "Locks", reaper=False)
    with pytest.raises(InvalidRequest, match=r"^stack_name: .* known at synth"):
        locks.share()
    LockService(own, "Locks", reaper=False)
    assert "Outputs" not in template_of(own)
    assert shared_by(template_of(own)) == {}


# A service of another stack: what may be done with it, and from where.

KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-table"


def test_clients_may_use_table_and_key_of_a_stack_and_administrators_more(own: Stack) -> None:
    key = kms.Key.from_key_arn(own, "Key", KEY)
    locks = LockService.from_stack(own, "Locks", stack_name="Fairlock", encryption_key=key)
    locks.grant_client(role(own))
    locks.grant_administration(role(own, "OnCall"))
    template = template_of(own)
    stated = statements(template, "Role")
    allowed = {it: str(each["Resource"]) for each in stated for it in listed(each["Action"])}
    executions = {"states:SendTaskSuccess", "states:DescribeExecution"}
    durable = {"lambda:SendDurableExecutionCallbackSuccess", "lambda:GetDurableExecution"}
    assert "LockTableName" in allowed["dynamodb:UpdateItem"]
    assert allowed["kms:Decrypt"] == KEY
    assert executions <= set(allowed)
    on_table = ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")
    table = {f"dynamodb:{each}" for each in (*on_table, "DescribeTable", "DescribeTimeToLive")}
    found = {each for each in actions(template, "OnCall") if not each.startswith("kms:")}
    assert found == table | executions | durable


def test_a_guard_in_another_region_than_its_service_is_refused(app: App) -> None:
    here = Stack(app, "Here", env=HERE)
    there = Stack(app, "There", env=Environment(account="123456789012", region="eu-west-1"))
    services = (functions_by_arn(here), LockService(here, "Own", reaper=False))
    for number, service in enumerate(services):
        guard(here, f"Guard{number}", service)
        with pytest.raises(InvalidRequest, match=r"^service: must be in the workflow's region eu-"):
            guard(there, f"Guard{number}", service)
