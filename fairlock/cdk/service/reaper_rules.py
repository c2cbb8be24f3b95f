"""The reaper's rules beside what it watches, and the policy of its queue, which names them.

AWS bounds both, so what is watched in one stack shares rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Final

import jsii
from aws_cdk import ArnFormat, IResource, IStableListProducer, Lazy, Names, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fairlock.cdk.fragments import require


def allow_rules(queue: sqs.Queue, rule_arns: Sequence[str] | None = None) -> None:
    """Allows EventBridge to send: for any rule, with `deny_all_but`, or for these at synth."""
    arns = None if rule_arns is None else Lazy.list(_Arns(rule_arns))
    only = {} if arns is None else {"ArnEquals": {"aws:SourceArn": arns}}
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            resources=[queue.queue_arn],
            conditions=only,
        )
    )


def deny_all_but(queue: sqs.Queue, rule_arns: Sequence[str], role: iam.IRole) -> None:
    """Denies sending to all others, also to who may send to every queue.

    Each rule by its exact ARN: any prefix would let anyone who may make a rule of that name tell
    the reaper what they like. The rules stand here alone, so the policy takes twice as many.
    """
    senders = {"aws:SourceArn": Lazy.list(_Arns(rule_arns)), "aws:PrincipalArn": role.role_arn}
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=["sqs:SendMessage"],
            principals=[iam.AnyPrincipal()],
            resources=[queue.queue_arn],
            conditions={"ArnNotEquals": senders},
        )
    )


@jsii.implements(IStableListProducer)
class _Arns:
    """A list as it is at synth."""

    def __init__(self, arns: Sequence[str]) -> None:
        self._arns = arns

    def produce(self) -> list[str]:
        return list(self._arns)


_IN_A_RULE: Final = 6
"""EventBridge takes 2,048 characters of a pattern (its user guide, "EventBridge quotas"). Each ARN
occurs in it twice, and has 143 characters at most."""
_MOST_RULES: Final = 65
"""SQS takes 8,192 bytes of a queue's policy (its developer guide, "Policy quotas"), in which each
ARN of a rule has 105 at most."""

_Place = tuple[str, str]
"""A stack, and the service of AWS that reports: what shares rules."""
_Watched = dict[_Place, dict[str, events.Rule]]
"""The rule of each machine and durable function that is watched, by its address in the app."""


def _by_place(source: str, watched: Sequence[IResource]) -> dict[_Place, set[str]]:
    found: dict[_Place, set[str]] = {}
    for each in watched:
        found.setdefault((each.stack.node.addr, source), set()).add(each.node.addr)
    return found


class RulesBesideWatched:
    """The rules that tell a reaper of single machines and durable functions."""

    def __init__(self, reaper: Construct) -> None:
        """Has no rules yet."""
        self.arns: list[str] = []
        self._reaper = reaper
        self._watched: _Watched = {}

    def require_room(self, source: str, more: Sequence[IResource], *, field: str) -> None:
        """Refuses what needs more rules than the queue's policy can name, before any is made."""
        counts = {place: len(rules) for place, rules in self._watched.items()}
        for place, addresses in _by_place(source, more).items():
            counts[place] = len(addresses | set(self._watched.get(place, {})))
        rules = sum(ceil(count / _IN_A_RULE) for count in counts.values())
        rule = (
            f"must fit {_MOST_RULES} EventBridge rules, {_IN_A_RULE} of one stack in each: the "
            f"policy of the reaper's queue holds no more; leave out watch(), or make the "
            f"service with durable=True, to serve all of the account and region by one rule"
        )
        require(field, rules <= _MOST_RULES, rule, f"{rules} rules")

    def add(
        self,
        watched: IResource,
        source: str,
        detail: Mapping[str, object],
        *,
        make: Callable[[Construct, str, str], events.Rule],
    ) -> None:
        """Adds to a rule beside what is watched; `make` makes one by scope, id and name."""
        [(place, [address])] = _by_place(source, [watched]).items()
        rules = self._watched.setdefault(place, {})
        if address in rules:
            return
        number, others = divmod(len(rules), _IN_A_RULE)
        if others:
            rule = list(rules.values())[-1]
            rule.add_event_pattern(detail=detail)
        else:
            service = Names.unique_resource_name(self._reaper, max_length=80)
            construct_id = f"{service}{source.title().replace('.', '')}{number + 1}"
            name = self._rule_name(watched.stack, construct_id)
            rule = make(watched.stack, construct_id, name)
            form = ArnFormat.SLASH_RESOURCE_NAME
            arn = Stack.of(self._reaper).format_arn(
                service="events", resource="rule", resource_name=name, arn_format=form
            )
            self.arns.append(arn)
        rules[address] = rule

    def _rule_name(self, stack: Stack, construct_id: str) -> str:
        """A name that is known before: a reference would make the service's stack depend on it."""
        places = (Stack.of(self._reaper).stack_name, stack.stack_name, construct_id)
        known = [place for place in places if not Token.is_unresolved(place)]
        digest = hashlib.sha256("\0".join(known).encode()).hexdigest()
        return f"fairlock-reaper-{digest[:24]}"
