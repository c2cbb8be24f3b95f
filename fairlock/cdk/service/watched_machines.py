"""Which state machines a reaper can watch."""

from __future__ import annotations

from typing import Final

from aws_cdk import Stack, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.places import first_difference
from fairlock.errors import InvalidRequest

_FIELD: Final = "machine"
_COLONS: Final = "arn:aws:states:region:account:stateMachine:name".count(":")


def check_machine(machine: sfn.IStateMachine, *, service: Construct) -> None:
    """Checks that Step Functions reports the ends of the machine's executions to this service.

    Raises:
        InvalidRequest: it is no state machine, a version or an alias of one, an Express one, or one
            of another account or region, as far as that is known at synth.
    """
    arn = getattr(machine, "state_machine_arn", None)
    if not isinstance(arn, str):
        rule = "must be a state machine, made or imported (StateMachine.from_state_machine_arn)"
        raise InvalidRequest(field=_FIELD, rule=rule, value=machine)
    if isinstance(machine, sfn.StateMachine) and (
        machine.state_machine_type == sfn.StateMachineType.EXPRESS
    ):
        rule = "must be a Standard workflow: Step Functions reports the end of no Express workflow"
        raise InvalidRequest(field=_FIELD, rule=rule, value=machine.node.path)
    if not Token.is_unresolved(arn) and arn.count(":") > _COLONS:
        rule = "must be the machine itself, whose events name it, not a version or an alias of it"
        raise InvalidRequest(field=_FIELD, rule=rule, value=arn)
    difference = first_difference(Stack.of(service), machine.env)
    if difference is not None:
        kind, own, _ = difference
        rule = f"must be in the service's {kind} {own}: events of other places do not arrive"
        raise InvalidRequest(field=_FIELD, rule=rule, value=arn)
