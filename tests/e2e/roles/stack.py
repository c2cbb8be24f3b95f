"""The roles that the lock service makes or grants to, beside the service in its stack."""

from __future__ import annotations

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard
from infra.lock_stack import LockStack

ROLES = (
    *("Acquire", "Heartbeat", "Release", "Reap", "Inspect", "ForceRelease", "SetLimit", "Publish"),
    *("Guard", "Client", "User", "Administrator"),
)
"""The functions' eight; a state machine with a guard; `grant_client`; `grant_use`; the control."""


def add_roles(stack: LockStack) -> None:
    """Adds a guarded state machine and roles with grants, and an output for each role."""
    locks, reaper = stack.locks, stack.locks.reaper
    administration = locks.administration
    assert reaper is not None
    assert administration is not None
    assert locks.publish_function is not None
    guard = LockGuard(
        stack,
        "Guarded",
        service=locks,
        task=sfn.Pass.jsonata(stack, "Work"),
        lock_name="guarded",
        keep_alive=Duration.seconds(15),
    )
    definition = sfn.DefinitionBody.from_chainable(guard)
    machine = sfn.StateMachine(stack, "Machine", definition_body=definition)
    client, user, administrator = (
        iam.Role(stack, name, assumed_by=iam.AccountRootPrincipal())
        for name in ("Client", "User", "Administrator")
    )
    locks.grant_client(client)
    locks.grant_use(user)
    team = iam.Role(stack, "TeamA", assumed_by=iam.AccountRootPrincipal())
    locks.grant_client(team, prefix="team-a/")
    CfnOutput(stack, "TeamARoleArn", value=team.role_arn)
    administrator.add_to_policy(iam.PolicyStatement(actions=["*"], resources=["*"]))
    functions = (locks.acquire_function, locks.heartbeat_function, locks.release_function)
    others = (
        reaper.function,
        administration.inspect,
        administration.force_release,
        administration.set_limit,
    )
    roles = [
        *(function.role for function in (*functions, *others, locks.publish_function)),
        *(machine.role, client, user, administrator),
    ]
    for name, role in zip(ROLES, roles, strict=True):
        assert role is not None
        CfnOutput(stack, f"{name}RoleArn", value=role.role_arn)
    CfnOutput(stack, "MachineArn", value=machine.state_machine_arn)
    assert locks.table.table_stream_arn is not None
    CfnOutput(stack, "StreamArn", value=locks.table.table_stream_arn)
    for scope, name in (
        (locks, "Acquire"),
        (locks, "Heartbeat"),
        (locks, "Release"),
        (reaper, "Reap"),
        (locks, "Inspect"),
        (locks, "ForceRelease"),
        (locks, "SetLimit"),
        (locks, "Publish"),
    ):
        log_group = scope.node.find_child(f"{name}Logs")
        assert isinstance(log_group, logs.LogGroup)
        CfnOutput(stack, f"{name}LogGroupArn", value=log_group.log_group_arn)
