"""The EventBridge rules that tell the reaper of ends, and the queue's policy, which names them.

AWS bounds both, so what is watched in one stack shares rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import jsii
from aws_cdk import ArnFormat, IResource, IStableListProducer, Lazy, Names, Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from fairlock.cdk.fragments import require


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEvents:
    """How a service of AWS reports ends of executions; the message has placeholders, `paths`.

    Attributes:
        arn_field: where an event has the ARN of what ran.
        part_of_arn: what follows that ARN if a part of it ran.
    """

    source: str
    detail_type: str
    ends: tuple[str, ...]
    arn_field: str
    part_of_arn: str
    paths: Mapping[str, str]
    message: str


OF_WORKFLOWS: Final = StatusEvents(
    source="aws.states",
    detail_type="Step Functions Execution Status Change",
    ends=("FAILED", "TIMED_OUT", "ABORTED"),
    arn_field="stateMachineArn",
    part_of_arn="/",  # Children of a Distributed Map have the map's label in it: machine/label.
    paths={
        "arn": "$.detail.executionArn",
        "redrives": "$.detail.redriveCount",
        "stopped": "$.detail.stopDate",
        "status": "$.detail.status",
        "time": "$.time",
    },
    message=(
        '{"detail": {"executionArn": "<arn>", "redriveCount": "<redrives>", '
        '"stopDate": "<stopped>", "status": "<status>"}, "time": "<time>"}'
    ),
)
OF_DURABLE_FUNCTIONS: Final = StatusEvents(
    source="aws.lambda",
    detail_type="Durable Execution Status Change",
    ends=("FAILED", "TIMED_OUT", "STOPPED"),
    arn_field="functionArn",
    part_of_arn=":",  # An event names the version that ran.
    paths={
        "arn": "$.detail.durableExecutionArn",
        "stopped": "$.detail.endTimestamp",
        "status": "$.detail.status",
        "time": "$.time",
    },
    message=(
        '{"detail": {"executionArn": "<arn>", "stopDate": "<stopped>", "status": "<status>"}, '
        '"time": "<time>"}'
    ),
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


class ReaperRules:
    """The rules of one reaper, each of which sends events to its queue, and no others may."""

    def __init__(
        self,
        reaper: Construct,
        *,
        queue: sqs.Queue,
        dead_letter_queue: sqs.Queue,
        role: iam.IRole,
    ) -> None:
        """Has no rules yet. `role` is that of the function, which may send to the queue as well."""
        self._reaper = reaper
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._arns: list[str] = []
        self._of_all: dict[str, str] = {}
        self._watched: dict[_Place, dict[str, str]] = {}
        self._shared: dict[_Place, list[events.CfnRule]] = {}
        arns = Lazy.list(_Arns(self._arns))
        _allow_rules(dead_letter_queue, {"ArnEquals": {"aws:SourceArn": arns}})
        # Any rule may send to the queue, and so this denies it to all others, also to who may send
        # to every queue. Each rule by its exact ARN: any prefix would let anyone who may make a
        # rule of that name tell the reaper what they like. The rules stand here alone, so the
        # policy takes twice as many.
        _allow_rules(queue, {})
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=["sqs:SendMessage"],
                principals=[iam.AnyPrincipal()],
                resources=[queue.queue_arn],
                conditions={
                    "ArnNotEquals": {"aws:SourceArn": arns, "aws:PrincipalArn": role.role_arn}
                },
            )
        )

    def add_for_all(self, construct_id: str, reported: StatusEvents) -> None:
        """Adds the rule for everything that reports so in the account and region."""
        rule = self._rule(self._reaper, construct_id, None, reported)
        rule.event_pattern = _pattern(reported, {})
        self._arns.append(rule.attr_arn)
        self._of_all[construct_id] = rule.attr_arn

    def remove_for_all(self, construct_id: str) -> None:
        """Removes that rule, if it is there."""
        if self._reaper.node.try_remove_child(construct_id):
            self._arns.remove(self._of_all[construct_id])

    def require_room(
        self, reported: StatusEvents, more: Sequence[IResource], *, field: str
    ) -> None:
        """Refuses what needs more rules than the queue's policy can name, before any is made."""
        addresses = {place: set(arns) for place, arns in self._watched.items()}
        for each in more:
            addresses.setdefault(_place(each, reported), set()).add(each.node.addr)
        rules = sum(ceil(len(those) / _IN_A_RULE) for those in addresses.values())
        rule = (
            f"must fit {_MOST_RULES} EventBridge rules, {_IN_A_RULE} of one stack in each: the "
            f"policy of the reaper's queue holds no more; leave out watch(), or make the "
            f"service with durable=True, to serve all of the account and region by one rule"
        )
        require(field, rules <= _MOST_RULES, rule, f"{rules} rules")

    def add(self, reported: StatusEvents, watched: IResource, arn: str) -> None:
        """Adds what is watched to a rule beside it, once."""
        place = _place(watched, reported)
        arns = self._watched.setdefault(place, {})
        if watched.node.addr in arns:
            return
        arns[watched.node.addr] = arn
        rules = self._shared.setdefault(place, [])
        if len(rules) * _IN_A_RULE < len(arns):
            service = Names.unique_resource_name(self._reaper, max_length=80)
            source = reported.source.title().replace(".", "")
            construct_id = f"{service}{source}{len(rules) + 1}"
            name = self._rule_name(watched.stack, construct_id)
            rules.append(self._rule(watched.stack, construct_id, name, reported))
            form = ArnFormat.SLASH_RESOURCE_NAME
            self._arns.append(
                Stack.of(self._reaper).format_arn(
                    service="events", resource="rule", resource_name=name, arn_format=form
                )
            )
        first = (len(rules) - 1) * _IN_A_RULE
        of_rule: list[object] = []
        for each in [*arns.values()][first:]:
            of_rule += [each, {"prefix": f"{each}{reported.part_of_arn}"}]
        rules[-1].event_pattern = _pattern(reported, {reported.arn_field: of_rule})

    def _rule_name(self, stack: Stack, construct_id: str) -> str:
        """A name that is known before: a reference would make the service's stack depend on it."""
        places = (Stack.of(self._reaper).stack_name, stack.stack_name, construct_id)
        known = [place for place in places if not Token.is_unresolved(place)]
        digest = hashlib.sha256("\0".join(known).encode()).hexdigest()
        return f"fairlock-reaper-{digest[:24]}"

    def _rule(
        self, scope: Construct, construct_id: str, name: str | None, reported: StatusEvents
    ) -> events.CfnRule:
        """No `events.Rule`: its target would let the queue's policy refer to each rule."""
        return events.CfnRule(
            Construct(scope, construct_id),
            "Resource",
            name=name,
            description="Executions that end without releasing their locks, for Fairlock",
            state="ENABLED",
            targets=[
                events.CfnRule.TargetProperty(
                    id="Target0",
                    arn=self._queue.queue_arn,
                    dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                        arn=self._dead_letter_queue.queue_arn
                    ),
                    # What the reaper needs, as JSON even if a field of the event is missing.
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map=dict(reported.paths), input_template=reported.message
                    ),
                )
            ],
        )


def _place(watched: IResource, reported: StatusEvents) -> _Place:
    return watched.stack.node.addr, reported.source


def _pattern(reported: StatusEvents, detail: Mapping[str, object]) -> dict[str, object]:
    return {
        "detail": {"status": [*reported.ends], **detail},
        "detail-type": [reported.detail_type],
        "source": [reported.source],
        # An event frees locks unasked, so none may come again from an archive: the name of its
        # execution may have been used again.
        "replay-name": [{"exists": False}],
    }


def _allow_rules(queue: sqs.Queue, conditions: Mapping[str, object]) -> None:
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            resources=[queue.queue_arn],
            conditions=conditions,
        )
    )
