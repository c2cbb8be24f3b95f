"""`ExecutionReaper`: frees the locks of workflow executions that ended without doing so.

EventBridge rule ──▶ queue ──▶ Reap     a first look at once, a second one a little later
│                │
└────────────────┴─────▶ dead-letter queue
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Unpack

import jsii
from aws_cdk import ArnFormat, Duration, Names, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.interfaces.aws_events import IRuleRef
from constructs import Construct

from leasehold.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS, FunctionMaker
from leasehold.cdk.service.metrics import MetricOptions
from leasehold.cdk.service.watched import check_place

SECOND_PASS_SECONDS: Final = FUNCTION_TIMEOUT_SECONDS + 15
"""Longer than an acquire, its cold start included, that was called before the execution ended."""

_ENDS: Final = ["FAILED", "TIMED_OUT", "ABORTED"]
_MOST_TRIES: Final = 10
"""One each visibility timeout: twenty minutes, in which throttles of Step Functions pass by."""
_BATCH: Final = 10
_MOST_AT_ONCE: Final = 5
"""Thousands of executions may be stopped at one go: this many functions ask Step Functions about
them, whose throttle for DescribeExecution is one for the account, and free locks."""
_TRIES_IN_A_VISIBILITY_TIMEOUT: Final = 6  # what the Lambda developer guide recommends
_EVERY_MACHINE: Final = "EveryMachine"


class ExecutionReaper(Construct):
    """Hears of executions that failed, timed out or were aborted, and frees what they held.

    Guarantees:
        * The execution's waiters leave the queues, its locks go to the next waiters, and a second
          look finds what an acquire took that was still under way at the first.
        * Only acquisitions of that execution are freed, however often and in whatever order the
          events come. An execution that was redriven meanwhile is left alone.

    Not guaranteed:
        * That the event arrives: status events are best effort. Without it the lock is free when
          its lease is over and the next one asks.
        * Anything for Express workflows and direct callers, of which there are no such events.

    What cannot be reaped in ten tries stands in the dead-letter queue for two weeks; it costs
    nobody more than a lease. The messages name executions, and do not contain their inputs; both
    queues are encrypted.

    Attributes:
        function: looks through the claims of an execution.
        queue: the events, and the reminders of second looks.
        dead_letter_queue: the events that could not be delivered or worked off.
    """

    def __init__(self, scope: Construct, construct_id: str, *, functions: FunctionMaker) -> None:
        """Made by `LockService`, which has what it needs."""
        super().__init__(scope, construct_id)
        self.dead_letter_queue: sqs.Queue = _queue(
            self, "DeadLetterQueue", retention_period=Duration.days(14)
        )
        self.queue: sqs.Queue = _queue(
            self,
            "Queue",
            visibility_timeout=Duration.seconds(
                FUNCTION_TIMEOUT_SECONDS * _TRIES_IN_A_VISIBILITY_TIMEOUT
            ),
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letter_queue, max_receive_count=_MOST_TRIES
            ),
        )
        for queue in (self.queue, self.dead_letter_queue):
            self._let_rules_send(queue)
        self.function: lambda_.Function = self._reaping(replace(functions, scope=self))
        self._rule(self, _EVERY_MACHINE, detail={"status": _ENDS})

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Hears of these state machines only; see `LockService.watch`."""
        for machine in machines:
            check_place(machine, service=self)
        self.node.try_remove_child(_EVERY_MACHINE)
        for machine in machines:
            names = [Names.unique_resource_name(end, max_length=80) for end in (machine, self)]
            construct_id = "ReapedBy".join(names)
            if machine.stack.node.try_find_child(construct_id) is None:
                arn = machine.state_machine_arn
                # The children of a Distributed Map have the map's label in the ARN: machine/label.
                heard = [arn, {"prefix": f"{arn}/"}]
                detail = {"status": _ENDS, "stateMachineArn": heard}
                self._rule(machine.stack, construct_id, detail=detail)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that could not be delivered or worked off, and wait for somebody to look at them.

        Left out: the maximum of 5 minutes. An alarm above zero is worth having.
        """
        return self.dead_letter_queue.metric_approximate_number_of_messages_visible(
            statistic=options.get("statistic", "Maximum"),
            period=options.get("period"),
            label=options.get("label"),
        )

    def _reaping(self, functions: FunctionMaker) -> lambda_.Function:
        reap = functions.make(
            "Reap",
            description="Leasehold: frees the locks of workflows that ended without doing so",
            table_actions=["Query", "UpdateItem", "DeleteItem"],
            environment={
                "LEASEHOLD_REAP_QUEUE_URL": self.queue.queue_url,
                "LEASEHOLD_SECOND_PASS_SECONDS": str(SECOND_PASS_SECONDS),
            },
        )
        functions.let_describe_executions(reap)
        functions.let_complete_tasks(reap)
        self.queue.grant(reap, "sqs:SendMessage")
        reap.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=_BATCH,
                max_concurrency=_MOST_AT_ONCE,
                report_batch_item_failures=True,
            )
        )
        return reap

    def _rule(self, scope: Construct, construct_id: str, *, detail: Mapping[str, object]) -> None:
        """A rule beside what it hears of: so it refers to the queue, and never the other way."""
        events.Rule(
            scope,
            construct_id,
            description="Executions that end without releasing their locks, for Leasehold",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail=detail,
            ),
            targets=[_QueueTarget(self.queue, self.dead_letter_queue)],
        )

    def _let_rules_send(self, queue: sqs.Queue) -> None:
        """Any rule of this account and region: the ARN of one in another stack would be a cycle."""
        rules = Stack.of(self).format_arn(
            service="events",
            resource="rule",
            resource_name="*",
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
        queue.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                resources=[queue.queue_arn],
                conditions={"ArnLike": {"aws:SourceArn": rules}},
            )
        )


@jsii.implements(events.IRuleTarget)
class _QueueTarget:
    """A queue whose policy allows every rule already; CDK's own target would add each one's ARN."""

    def __init__(self, queue: sqs.IQueue, dead_letter_queue: sqs.IQueue) -> None:
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue

    def bind(
        self,
        rule: IRuleRef,  # noqa: ARG002 - the interface's
        id: str | None = None,  # noqa: A002, ARG002 - the interface's
    ) -> events.RuleTargetConfig:
        return events.RuleTargetConfig(
            arn=self._queue.queue_arn,
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                arn=self._dead_letter_queue.queue_arn
            ),
            input=_WhichExecution(),
        )


class _WhichExecution(events.RuleTargetInput):
    """Leaves out all but what is needed: an event has the execution's input in it, and its output.

    The placeholders are quoted, so that the message is JSON also if a field were missing.
    """

    def bind(
        self,
        rule: IRuleRef,  # noqa: ARG002 - the base class's
    ) -> events.RuleTargetInputProperties:
        return events.RuleTargetInputProperties(
            input_paths_map={"arn": "$.detail.executionArn", "redrives": "$.detail.redriveCount"},
            input_template='{"detail": {"executionArn": "<arn>", "redriveCount": "<redrives>"}}',
        )


def _queue(
    scope: Construct,
    construct_id: str,
    *,
    retention_period: Duration | None = None,
    visibility_timeout: Duration | None = None,
    dead_letter_queue: sqs.DeadLetterQueue | None = None,
) -> sqs.Queue:
    return sqs.Queue(
        scope,
        construct_id,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=retention_period,
        visibility_timeout=visibility_timeout,
        dead_letter_queue=dead_letter_queue,
    )
