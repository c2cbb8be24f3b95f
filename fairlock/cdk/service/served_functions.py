"""Which durable functions a service serves, as policies of the roles of the service's functions.

The policies stand beside the durable functions, whose stacks refer to the service's, never the
other way round. IAM bounds the policies of a role, so the functions of one stack share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aws_cdk import ArnFormat, Names, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from fairlock.cdk.fragments import first_difference, require
from fairlock.cdk.service.functions import acknowledge_wildcard
from fairlock.errors import InvalidRequest
from fairlock.names import MEETS_DURABLE_VARIABLE

_ACTIONS: Final = ("lambda:GetDurableExecution", "lambda:SendDurableExecutionCallbackSuccess")


def check_function(function: lambda_.IFunction, *, service: Construct) -> None:
    """Checks that the function can hold locks: the environment of others cannot be set."""
    is_own = isinstance(function, lambda_.Function)
    rule = "must be a lambda_.Function of this app, and neither a version nor an alias of it"
    require("function", is_own, rule, type(function).__name__)
    here = Stack.of(service)
    difference = first_difference(here, function.env)
    if difference is not None:
        _, own, other = difference
        rule = f"must be in the service's account and region ({here.account}, {here.region})"
        raise InvalidRequest(field="function", rule=rule, value=f"{other} instead of {own}")


def grant_on_all(scope: Construct, grantee: iam.IGrantable) -> iam.Grant:
    """Allows to wake and to ask about the executions of every durable function of the region."""
    functions = Stack.of(scope).format_arn(
        service="lambda",
        resource="function",
        resource_name="*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return iam.Grant.add_to_principal(
        grantee=grantee, actions=[*_ACTIONS], resource_arns=[functions]
    )


_MOST_INLINE: Final = 7_000
"""Characters. IAM takes 10,240 of all inline policies of a role together (its user guide, "IAM and
STS quotas"); the rest is for what the service's functions may do besides."""
_MOST_IN_MANAGED: Final = 6_144
"""Characters of one managed policy (same)."""
_MOST_MANAGED: Final = 8
"""Of ten that a role may have; the others are for those of an organization."""
_OF_A_POLICY: Final = 300
_OF_A_FUNCTION: Final = 130
_OF_A_KEY: Final = 180
"""Characters that these take, with the longest names."""
_ANY_VERSION: Final = "The executions of all versions of this durable function may hold a lock."
_ANY_FUNCTION: Final = "Any durable function of this account and region may hold a lock."


@dataclass
class _Policy:
    """A policy for durable functions of one stack; `room` counts characters, None if inline."""

    construct: iam.Policy | iam.ManagedPolicy
    room: int | None
    executions: iam.PolicyStatement | None = None
    keys: set[str] = field(default_factory=set)


class ServedFunctions:
    """Serves functions one by one: inline policies take a few of many stacks, managed ones many."""

    def __init__(self, service: Construct, functions: Sequence[lambda_.Function]) -> None:
        """Takes the service's functions that meet durable executions."""
        self._service = service
        self._functions = functions
        self._inline_room = _MOST_INLINE
        self._managed = 0
        self._policies: dict[str, list[_Policy]] = {}
        self._served: set[str] = set()

    def serve_all(self) -> None:
        """Lets the service's functions serve every durable function of the account and region."""
        resource = "arn:<AWS::Partition>:lambda:<AWS::Region>:<AWS::AccountId>:function:*"
        for each in self._functions:
            grant_on_all(self._service, each)
            each.add_environment(MEETS_DURABLE_VARIABLE, "1")
            if each.role is not None:
                acknowledge_wildcard(each.role, f"Resource::{resource}", _ANY_FUNCTION)

    def serve(self, durable: lambda_.Function) -> None:
        """Lets the service's functions wake and ask about the executions of a durable function."""
        if durable.node.addr in self._served:
            return
        policy = self._policy_with_room(durable, _OF_A_FUNCTION, field="function")
        self._served.add(durable.node.addr)
        if policy.executions is None:
            policy.executions = iam.PolicyStatement(actions=[*_ACTIONS])
            policy.construct.add_statements(policy.executions)
        # An ARN without a version matches no execution (Lambda developer guide, "Security and
        # permissions for Lambda durable functions").
        policy.executions.add_resources(f"{durable.function_arn}:*")
        logical_id = Stack.of(durable).get_logical_id(durable.node.default_child)  # type: ignore[arg-type]  # a CfnElement
        finding = f"Resource::<{logical_id}.Arn>:*"
        acknowledge_wildcard(policy.construct, finding, _ANY_VERSION)
        for each in self._functions:
            each.add_environment(MEETS_DURABLE_VARIABLE, "1")

    def allow_key(self, durable: lambda_.Function, key: kms.IKey) -> None:
        """Lets the service's functions complete callbacks whose function has a key."""
        if any(key.node.addr in each.keys for each in self._policies_of(durable)):
            return
        policy = self._policy_with_room(durable, _OF_A_KEY, field="key")
        policy.keys.add(key.node.addr)
        decrypt = iam.PolicyStatement(actions=["kms:Decrypt"], resources=[key.key_arn])
        policy.construct.add_statements(decrypt)

    def _policies_of(self, durable: lambda_.Function) -> list[_Policy]:
        return self._policies.setdefault(Stack.of(durable).node.addr, [])

    def _policy_with_room(self, durable: lambda_.Function, needed: int, *, field: str) -> _Policy:
        """An inline policy as long as the roles have room for it, then a managed one."""
        policies = self._policies_of(durable)
        inline = next((each for each in policies if each.room is None), None)
        cost = needed + (0 if inline else _OF_A_POLICY)
        if cost <= self._inline_room:
            self._inline_room -= cost
            return inline or self._add_policy(durable, room=None)
        for each in policies:
            if each.room is not None and each.room >= needed:
                each.room -= needed
                return each
        if self._managed == _MOST_MANAGED:
            rule = (
                "must fit what IAM takes of policies for the roles of the service: make it with "
                "durable=True, which serves all of the account and region by one statement"
            )
            raise InvalidRequest(field=field, rule=rule, value=durable.node.path)
        self._managed += 1
        return self._add_policy(durable, room=_MOST_IN_MANAGED - _OF_A_POLICY - needed)

    def _add_policy(self, durable: lambda_.Function, *, room: int | None) -> _Policy:
        stack, policies = Stack.of(durable), self._policies_of(durable)
        service = Names.unique_resource_name(self._service, max_length=80)
        construct_id = f"{service}Serves{len(policies) + 1}"
        roles = [each.role for each in self._functions if each.role is not None]
        make = iam.Policy if room is None else iam.ManagedPolicy
        policies.append(_Policy(make(stack, construct_id, roles=roles), room))
        return policies[-1]
