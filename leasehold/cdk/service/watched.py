"""Checks of the state machines that a service is told to watch."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Stack, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from leasehold.errors import InvalidRequest


def checked_machines(machines: Sequence[sfn.IStateMachine]) -> Sequence[sfn.IStateMachine]:
    """At least one machine.

    Raises:
        InvalidRequest: there is none; the reaper would hear of nothing.
    """
    if not machines:
        rule = "must name at least one state machine; reaper=False watches none"
        raise InvalidRequest(field="machines", rule=rule, value=[])
    return machines


def check_place(machine: sfn.IStateMachine, *, service: Construct) -> None:
    """In the account and region of the service, as far as that is known at synth.

    Raises:
        InvalidRequest: names the machine and where the service is.
    """
    here, there = Stack.of(service), machine.env
    for kind, own, other in (
        ("account", here.account, there.account),
        ("region", here.region, there.region),
    ):
        known = not Token.is_unresolved(own) and not Token.is_unresolved(other)
        if known and own != other:
            rule = f"must be in the service's {kind} {own}: nobody hears of executions elsewhere"
            raise InvalidRequest(field="machine", rule=rule, value=machine.state_machine_arn)
