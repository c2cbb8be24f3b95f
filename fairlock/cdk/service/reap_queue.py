"""The reaper's queues, and who may send to them: its own rules, and its function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jsii
from aws_cdk import Duration, IStableListProducer, Lazy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

_DAYS_OF_DEAD_LETTERS: Final = 14
_MOST_TRIES: Final = 10
"""One each visibility timeout: twenty minutes, longer than throttles of Step Functions last."""


def reap_queues(scope: Construct, *, visibility_timeout: Duration) -> tuple[sqs.Queue, sqs.Queue]:
    """The queue of the events, and the dead-letter queue behind it."""
    dead_letter_queue = sqs.Queue(
        scope,
        "DeadLetterQueue",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(_DAYS_OF_DEAD_LETTERS),
    )
    queue = sqs.Queue(
        scope,
        "Queue",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        visibility_timeout=visibility_timeout,
        dead_letter_queue=sqs.DeadLetterQueue(
            queue=dead_letter_queue, max_receive_count=_MOST_TRIES
        ),
    )
    return queue, dead_letter_queue


def allow_rules(queue: sqs.Queue, rule_arns: Sequence[str]) -> None:
    """Allows these EventBridge rules to send, and those that the list gets until synth."""
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            resources=[queue.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": _at_synth(rule_arns)}},
        )
    )


def deny_all_but(queue: sqs.Queue, rule_arns: Sequence[str], role: iam.IRole) -> None:
    """Denies sending to everybody else, also to who may send to every queue of the account."""
    senders = {"aws:SourceArn": _at_synth(rule_arns), "aws:PrincipalArn": role.role_arn}
    queue.add_to_resource_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=["sqs:SendMessage"],
            principals=[iam.AnyPrincipal()],
            resources=[queue.queue_arn],
            conditions={"ArnNotEquals": senders},
        )
    )


def _at_synth(arns: Sequence[str]) -> list[str]:
    return Lazy.list(_Arns(arns))


@jsii.implements(IStableListProducer)
class _Arns:
    def __init__(self, arns: Sequence[str]) -> None:
        self._arns = arns

    def produce(self) -> list[str]:
        return list(self._arns)
