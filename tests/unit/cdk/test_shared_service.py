"""A service that a stack shares, found by the stack's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, NestedStack, Stack, Stage
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import Construct

from fairlock.cdk import ILockService, LockGuard, LockService, MetricName
from fairlock.cdk.guard.standalone import FunctionsByArn
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import FUNCTION
from tests.unit.cdk.template import arn, one, resources

Json = dict[str, Any]

ELSEWHERE = "arn:aws:states:eu-west-1:123456789012:stateMachine:billing"
HERE = Environment(account="123456789012", region="us-east-1")
BY_A_GUARD = ["AcquireFunctionArn", "ReleaseFunctionArn"]
ALWAYS = sorted(
    [*BY_A_GUARD, "HeartbeatFunctionArn", "LockTableName", "LogGroupNames", "ServiceName"]
)
OF_A_REAPER = [
    *("ReapDeadLetterQueueArn", "ReapFunctionArn", "ReapQueueArn"),
    "WatchesEveryMachine",
]


@pytest.fixture(scope="module")
def every_app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """One for all tests, so that the code of the functions is assembled once."""
    return App(outdir=str(tmp_path_factory.mktemp("cdk.out")))


@pytest.fixture
def app(every_app: App) -> Stage:
    return Stage(every_app, f"Stage{len(every_app.node.children)}")


@pytest.fixture
def user(app: Stage) -> Stack:
    return Stack(app, "User", env=HERE)


def template(stack: Stack) -> Json:
    return dict(Template.from_stack(stack).to_json())


def read_by(stack: Stack) -> list[str]:
    """The parameters of the Parameter Store that a stack reads when it is deployed."""
    found = template(stack)["Parameters"].values()
    return sorted(
        parameter["Default"].removeprefix("/fairlock/Fairlock/")
        for parameter in found
        if parameter["Type"] == "AWS::SSM::Parameter::Value<String>"
        and parameter["Default"].startswith("/fairlock/")
    )


def shared_by(stack: Stack) -> dict[str, object]:
    found = resources(template(stack), "AWS::SSM::Parameter").values()
    return {each["Properties"]["Name"]: each["Properties"]["Value"] for each in found}


def names_shared_by(stack: Stack) -> list[str]:
    prefix = f"/fairlock/{stack.stack_name}/"
    return sorted(name.removeprefix(prefix) for name in shared_by(stack))


def role(stack: Stack, name: str = "Role") -> iam.Role:
    return iam.Role(stack, name, assumed_by=iam.AccountRootPrincipal())


def function(stack: Stack) -> lambda_.Function:
    return lambda_.Function(
        stack,
        "Durable",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
    )


def guard(stack: Stack, name: str, service: LockService | Any, task: Any = None) -> LockGuard:  # noqa: ANN401 - any service, any state
    work = task or sfn.Pass(stack, f"{name}Work")
    return LockGuard(stack, name, service=service, task=work, lock_name="x")


def test_the_stack_fairlock_shares_its_table_its_functions_and_its_dead_letters(
    lock_template: Json,
) -> None:
    table, _ = one(lock_template, "AWS::DynamoDB::Table", "Table")
    dead_letters, _ = one(lock_template, "AWS::SQS::Queue", "ReaperDeadLetterQueue")
    expected: Json = {
        "ServiceName": {"Fn::Join": ["", [{"Ref": "AWS::StackName"}, "/Locks"]]},
        "LockTableName": {"Ref": table},
        "ReapDeadLetterQueueArn": arn(dead_letters),
        "ReapQueueArn": arn(one(lock_template, "AWS::SQS::Queue", "ReaperQueue")[0]),
        "WatchesEveryMachine": "true",
    }
    for operation, prefix in (
        *((name, name) for name in ("Acquire", "Heartbeat", "Release")),
        ("Reap", "ReaperReap"),
    ):
        shared, _ = one(lock_template, "AWS::Lambda::Function", prefix)
        expected[f"{operation}FunctionArn"] = arn(shared)
    logs = [
        {"Ref": one(lock_template, "AWS::Logs::LogGroup", f"{prefix}Logs")[0]}
        for prefix in ("Acquire", "Heartbeat", "Release", "ReaperReap")
    ]
    separated = [part for log_group in logs for part in (log_group, ",")][:-1]
    expected["LogGroupNames"] = {"Fn::Join": ["", separated]}
    found = resources(lock_template, "AWS::SSM::Parameter").values()
    assert {each["Properties"]["Name"]: each["Properties"]["Value"] for each in found} == {
        f"/fairlock/Fairlock/{name}": value for name, value in expected.items()
    }


def test_what_a_user_reads_is_what_the_stack_shares(user: Stack, lock_stack: Stack) -> None:
    locks = LockService.from_stack(user, "Locks", stack_name="Fairlock")
    locks.metric_dead_letters()
    locks.metric_dead_letters(statistic="Sum")
    locks.metric_oldest_event()
    locks.metric(MetricName.LOST)
    assert locks.reap_function is locks.reap_function
    assert locks.log_group_names
    locks.grant_heartbeat(role(user))
    locks.grant_client(role(user, "Client"))
    locks.watch(sfn.StateMachine(user, "M", definition_body=body(guard(user, "G", locks))))
    assert read_by(user) == names_shared_by(lock_stack) == sorted(ALWAYS + OF_A_REAPER)


def body(work: sfn.IChainable) -> sfn.DefinitionBody:
    return sfn.DefinitionBody.from_chainable(work)


def test_a_user_imports_no_export_so_that_neither_stack_keeps_the_other_from_being_deployed(
    user: Stack, lock_template: Json
) -> None:
    locks = LockService.from_stack(user, "Locks", stack_name="Fairlock")
    sfn.StateMachine(user, "Machine", definition_body=body(guard(user, "Guard", locks)))
    assert "Fn::ImportValue" not in json.dumps(template(user))
    assert not any("Export" in output for output in lock_template["Outputs"].values())


def test_a_cross_stack_reference_imports_an_export(app: Stage) -> None:
    """The negative control: what `from_stack` avoids."""
    locks = LockService(Stack(app, "Fairlock"), "Locks")
    user = Stack(app, "User")
    sfn.StateMachine(user, "Machine", definition_body=body(guard(user, "Guard", locks)))
    assert "Fn::ImportValue" in json.dumps(template(user))


def test_a_user_reads_only_what_it_uses(app: Stage, user: Stack) -> None:
    """CDK and cfn-lint warn of a parameter that a template does not use (W2001)."""
    unused = Stack(app, "Unused", env=HERE)
    LockService.from_stack(unused, "Locks", stack_name="Fairlock")
    locks = LockService.from_stack(user, "Locks", stack_name="Fairlock")
    sfn.StateMachine(user, "Machine", definition_body=body(guard(user, "Guard", locks)))
    assert (read_by(unused), read_by(user)) == ([], BY_A_GUARD)


def test_a_client_of_a_prefix_is_let_at_the_partitions_of_its_locks(user: Stack) -> None:
    """DynamoDB enforces it: tests/e2e/roles/test_roles.py."""
    LockService.from_stack(user, "Locks", stack_name="Fairlock").grant_client(
        role(user), prefix="team-a/"
    )
    policies = json.dumps(resources(template(user), "AWS::IAM::Policy"))
    keys = '["LOCK#team-a/*", "PACE#team-a/*"]'
    assert f'"ForAllValues:StringLike": {{"dynamodb:LeadingKeys": {keys}}}' in policies
    assert '"Null": {"dynamodb:LeadingKeys": "false"}' in policies
    assert "dynamodb:Scan" not in policies


def test_a_client_of_a_prefix_may_read_single_claims_and_nothing_else_of_workflows(
    user: Stack,
) -> None:
    """Without it an acquire fails that asks whether the workflow that holds still runs."""
    LockService.from_stack(user, "Locks", stack_name="Fairlock").grant_client(
        role(user), prefix="team-a/"
    )
    [policy] = resources(template(user), "AWS::IAM::Policy").values()
    [statement] = [
        each
        for each in policy["Properties"]["PolicyDocument"]["Statement"]
        if "EXECUTION#*" in json.dumps(each)
    ]
    assert statement["Action"] == "dynamodb:GetItem"
    assert statement["Condition"] == {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["EXECUTION#*"]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


@pytest.mark.parametrize("prefix", ["", "*", "team-?", "${aws:username}/", "a\n", 7])
def test_a_prefix_that_is_a_pattern_is_refused(user: Stack, prefix: str) -> None:
    locks = LockService.from_stack(user, "Locks", stack_name="Fairlock")
    with pytest.raises(InvalidRequest, match=r"^prefix: must be the beginning of lock names"):
        locks.grant_client(role(user), prefix=prefix)


def test_a_machine_may_invoke_the_functions_of_the_shared_service_and_a_client_use_its_table(
    user: Stack,
) -> None:
    locks = LockService.from_stack(user, "Locks", stack_name="Other")
    locks.grant_use(role(user))
    locks.grant_client(role(user, "Client"))
    found = template(user)
    names = {
        parameter["Default"].removeprefix("/fairlock/Other/"): {"Ref": logical_id}
        for logical_id, parameter in found["Parameters"].items()
    }
    policies = json.dumps(resources(found, "AWS::IAM::Policy"))
    for operation in ("Acquire", "Heartbeat", "Release"):
        assert json.dumps(names[f"{operation}FunctionArn"]) in policies
    assert json.dumps(names["LockTableName"]) in policies
    assert user.resolve(locks.table_name) == names["LockTableName"]


def test_a_service_without_a_reaper_shares_neither_its_queue_nor_that_it_watches(
    app: Stage,
) -> None:
    stack = Stack(app, "Bare")
    LockService(stack, "Locks", reaper=False).share()
    assert names_shared_by(stack) == ALWAYS


@pytest.mark.parametrize("narrowed_first", [True, False])
def test_a_narrowed_service_does_not_tell_that_it_watches_every_machine(
    app: Stage, *, narrowed_first: bool
) -> None:
    stack = Stack(app, "Narrow")
    locks = LockService(stack, "Locks")
    machine = sfn.StateMachine(stack, "Machine", definition_body=body(sfn.Pass(stack, "Work")))
    steps = [lambda: locks.watch(machine), locks.share]
    for step in steps if narrowed_first else reversed(steps):
        step()
    assert names_shared_by(stack) == sorted({*ALWAYS, *OF_A_REAPER} - {"WatchesEveryMachine"})


def test_watch_of_a_shared_service_needs_one_that_watches_every_machine(user: Stack) -> None:
    machine = sfn.StateMachine(user, "Machine", definition_body=body(sfn.Pass(user, "Work")))
    LockService.from_stack(user, "Locks", stack_name="Fairlock").watch(machine)
    assert "WatchesEveryMachine" in read_by(user)
    assert resources(template(user), "AWS::Events::Rule") == {}


def test_a_machine_of_another_region_is_refused(user: Stack) -> None:
    machine = sfn.StateMachine.from_state_machine_arn(user, "Machine", ELSEWHERE)
    with pytest.raises(InvalidRequest, match=r"^machine: must be in the service's region"):
        LockService.from_stack(user, "Locks", stack_name="Fairlock").watch(machine)


def test_grant_durable_needs_a_service_that_serves_every_durable_function(
    app: Stage, user: Stack
) -> None:
    durable = Stack(app, "Fairlock")
    LockService(durable, "Locks", durable=True).share()
    LockService.from_stack(user, "Locks", stack_name="Fairlock").grant_durable(function(user))
    assert "ServesEveryDurableFunction" in read_by(user)
    assert "ServesEveryDurableFunction" in names_shared_by(durable)


@pytest.mark.parametrize(
    ("grant", "parameter"),
    [
        ("grant_inspect", "InspectFunctionArn"),
        ("grant_force_release", "ForceReleaseFunctionArn"),
        ("grant_set_limit", "SetLimitFunctionArn"),
    ],
)
def test_each_function_of_administrators_is_granted_by_itself(
    user: Stack, grant: str, parameter: str
) -> None:
    getattr(LockService.from_stack(user, "Locks", stack_name="Fairlock"), grant)(role(user))
    assert read_by(user) == [parameter]


def test_the_functions_of_administrators_are_shared_if_the_service_has_them(app: Stage) -> None:
    own = Stack(app, "Fairlock")
    LockService(own, "Locks", administration=True).share()
    needed = {"InspectFunctionArn", "ForceReleaseFunctionArn", "SetLimitFunctionArn"}
    assert needed <= set(names_shared_by(own))


def test_two_references_to_one_service_are_the_same_service_for_nested_guards(
    app: Stage, user: Stack
) -> None:
    inner = guard(user, "Inner", LockService.from_stack(user, "One", stack_name="Fairlock"))
    outer = guard(
        user, "Outer", LockService.from_stack(user, "Two", stack_name="Fairlock"), task=inner
    )
    sfn.StateMachine(user, "Machine", definition_body=body(outer))
    with pytest.raises(RuntimeError, match="lock_name: must not be that of the guard around"):
        app.synth()


def test_nested_guards_of_two_shared_services_may_use_one_lock_name(
    app: Stage, user: Stack
) -> None:
    inner = guard(user, "Inner", LockService.from_stack(user, "One", stack_name="Fairlock"))
    other = LockService.from_stack(user, "Two", stack_name="Other")
    outer = guard(user, "Outer", other, task=inner)
    sfn.StateMachine(user, "Machine", definition_body=body(outer))
    app.synth()


@pytest.mark.parametrize("name", ["", "9lives", "a/b", "x" * 129, None, 7])
def test_what_cannot_be_the_name_of_a_stack_is_refused_before_anything_is_declared(
    user: Stack,
    name: Any,  # noqa: ANN401 - wrong types as well
) -> None:
    with pytest.raises(InvalidRequest, match=r"^stack_name: must be the name of a stack"):
        LockService.from_stack(user, "Locks", stack_name=name)
    assert user.node.try_find_child("Locks") is None


def test_one_service_of_a_stack_can_be_shared(app: Stage) -> None:
    stack = Stack(app, "Two")
    LockService(stack, "One").share()
    with pytest.raises(InvalidRequest, match=r"^share: must be called once in a stack"):
        LockService(stack, "Other").share()


def test_a_service_in_a_nested_stack_has_no_name_to_be_found_by(app: Stage) -> None:
    nested = NestedStack(Stack(app, "Outer"), "Nested")
    with pytest.raises(InvalidRequest, match=r"^stack_name: .* known at synth"):
        LockService(nested, "Locks").share()


def test_outputs_on_request_have_the_names_of_the_stack_fairlock(
    app: Stage, lock_template: Json
) -> None:
    stack = Stack(app, "Own")
    locks = LockService(stack, "Locks")
    locks.add_outputs()
    assert set(template(stack)["Outputs"]) == set(lock_template["Outputs"])
    with pytest.raises(InvalidRequest, match=r"^add_outputs: must be called once in a stack"):
        locks.add_outputs()


def test_without_request_there_is_no_output_and_no_parameter(app: Stage) -> None:
    stack = Stack(app, "Own")
    LockService(stack, "Locks")
    assert "Outputs" not in template(stack)
    assert shared_by(stack) == {}


# A service of another stack: what may be done with it, and from where.

KEY = "arn:aws:kms:us-east-1:123456789012:key/of-the-table"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Importing")


def allowed_by(stack: Stack) -> dict[str, str]:
    """The resources of each action that the only policy of the stack allows."""
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    allowed: dict[str, str] = {}
    for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            allowed[action] = str(statement["Resource"])
    return allowed


def test_a_client_may_use_the_table_of_another_stack_and_its_key(stack: Stack) -> None:
    key = kms.Key.from_key_arn(stack, "Key", KEY)
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock", encryption_key=key)
    locks.grant_client(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    allowed = allowed_by(stack)
    assert "LockTableName" in allowed["dynamodb:UpdateItem"]
    assert allowed["kms:Decrypt"] == KEY
    assert {"states:SendTaskSuccess", "states:DescribeExecution"} <= set(allowed)


def test_administration_reads_the_table_and_writes_two_ways_and_wakes_workflows(
    stack: Stack,
) -> None:
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    locks.grant_administration(iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal()))
    on_table = ("GetItem", "Query", "Scan", "UpdateItem", "DeleteItem")
    settings = ("DescribeTable", "DescribeTimeToLive")
    assert set(allowed_by(stack)) == {
        *(f"dynamodb:{action}" for action in (*on_table, *settings)),
        *("states:SendTaskSuccess", "states:DescribeExecution"),
        *("lambda:SendDurableExecutionCallbackSuccess", "lambda:GetDurableExecution"),
    }


def test_a_guard_in_another_region_than_its_service_is_refused(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    here, there = (
        Stack(app, region, env=Environment(account="123456789012", region=region))
        for region in ("us-east-1", "eu-west-1")
    )

    def guard(stack: Stack, service: ILockService) -> LockGuard:
        scope = Construct(stack, f"Scope{len(stack.node.children)}")
        task = sfn.Pass.jsonata(scope, "Work")
        return LockGuard(scope, "Guard", service=service, task=task, lock_name="x")

    names = ("acquire", "heartbeat", "release")
    arns = {f"{name}_function_arn": f"{FUNCTION}:{name}" for name in names}
    for service in (FunctionsByArn(here, "ByArn", **arns), LockService(here, "Locks")):
        guard(here, service)
        with pytest.raises(InvalidRequest, match=r"^service: must be in the workflow's region eu-"):
            guard(there, service)
