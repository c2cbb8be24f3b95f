"""`ExecutionReaper`: frees the locks of workflow executions that ended without doing so.

EventBridge rule ──▶ queue ──▶ Reap     a first pass at once, a second one a little later
│                │
└────────────────┴─────▶ dead-letter queue

Only its own rules and its function may send to the queues. It can watch Standard workflows, of its
own account and region, and durable functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Unpack, cast

import jsii
from aws_cdk import CfnResource, Duration, IResource, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.interfaces.aws_events import IRuleRef
from constructs import Construct

from fairlock.cdk.fragments import first_difference, is_whole, require
from fairlock.cdk.service.functions import (
    FUNCTION_TIMEOUT_SECONDS,
    HANDS_OVER,
    WAKES,
    FunctionFactory,
)
from fairlock.cdk.service.reaper_rules import RulesBesideWatched, allow_rules, deny_all_but
from fairlock.cdk.service.service_base import MetricOptions
from fairlock.errors import InvalidRequest
from fairlock.names import REAP_QUEUE_VARIABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEvents:
    """How a service of AWS reports ends of executions; the message has placeholders, `paths`."""

    source: str
    detail_type: str
    ends: tuple[str, ...]
    paths: Mapping[str, str]
    message: str

    def pattern(self, detail: Mapping[str, object]) -> events.EventPattern:
        """The ends of executions whose event has these details."""
        return events.EventPattern(
            source=[self.source],
            detail_type=[self.detail_type],
            detail={"status": [*self.ends], **detail},
        )


OF_WORKFLOWS: Final = StatusEvents(
    source="aws.states",
    detail_type="Step Functions Execution Status Change",
    ends=("FAILED", "TIMED_OUT", "ABORTED"),
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


@jsii.implements(events.IRuleTarget)
class ReaperTarget:
    """A queue whose policy names the rules; CDK's own target would refer to each rule."""

    def __init__(
        self, queue: sqs.IQueue, dead_letter_queue: sqs.IQueue, reported: StatusEvents
    ) -> None:
        """Takes the queue of the events, and that of the events it could not get."""
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue
        self._reported = reported

    def bind(
        self,
        rule: IRuleRef,  # noqa: ARG002 - the interface's
        id: str | None = None,  # noqa: A002, ARG002 - the interface's
    ) -> events.RuleTargetConfig:
        """What the rule sends, and where."""
        return events.RuleTargetConfig(
            arn=self._queue.queue_arn,
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                arn=self._dead_letter_queue.queue_arn
            ),
            input=_NameOfExecution(self._reported),
        )


class _NameOfExecution(events.RuleTargetInput):
    """The part of an event that the reaper needs, as JSON even if a field of it is missing."""

    def __init__(self, reported: StatusEvents) -> None:
        super().__init__()
        self._reported = reported

    def bind(
        self,
        rule: IRuleRef,  # noqa: ARG002 - the base class's
    ) -> events.RuleTargetInputProperties:
        return events.RuleTargetInputProperties(
            input_paths_map=dict(self._reported.paths), input_template=self._reported.message
        )


_DAYS: Final = 14
"""The most that SQS keeps a message: an alarm must be heard before events are lost."""
_MOST_TRIES: Final = 10
"""One each visibility timeout: twenty minutes, longer than throttles of Step Functions last."""


def reap_queues(scope: Construct, *, visibility_timeout: Duration) -> tuple[sqs.Queue, sqs.Queue]:
    """The queue of the events, and the dead-letter queue behind it."""
    dead_letter_queue = sqs.Queue(
        scope,
        "DeadLetterQueue",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=Duration.days(_DAYS),
    )
    queue = sqs.Queue(
        scope,
        "Queue",
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        visibility_timeout=visibility_timeout,
        retention_period=Duration.days(_DAYS),
        dead_letter_queue=sqs.DeadLetterQueue(
            queue=dead_letter_queue, max_receive_count=_MOST_TRIES
        ),
    )
    return queue, dead_letter_queue


_FIELD: Final = "machine"
_COLONS: Final = "arn:aws:states:region:account:stateMachine:name".count(":")


def check_machine(machine: sfn.IStateMachine, *, service: Construct) -> None:
    """Checks that Step Functions reports the ends of the machine's executions to this service."""
    arn = getattr(machine, "state_machine_arn", None)
    if not isinstance(arn, str):
        rule = "must be a state machine, made or imported (StateMachine.from_state_machine_arn)"
        raise InvalidRequest(field=_FIELD, rule=rule, value=machine)
    is_express = isinstance(machine, sfn.StateMachine) and (
        machine.state_machine_type == sfn.StateMachineType.EXPRESS
    )
    rule = "must be a Standard workflow: Step Functions reports the end of no Express workflow"
    require(_FIELD, not is_express, rule, machine.node.path)
    is_machine = Token.is_unresolved(arn) or arn.count(":") <= _COLONS
    rule = "must be the machine itself, whose events name it, not a version or an alias of it"
    require(_FIELD, is_machine, rule, arn)
    difference = first_difference(Stack.of(service), machine.env)
    if difference is not None:
        kind, own, _ = difference
        rule = f"must be in the service's {kind} {own}: events of other places do not arrive"
        raise InvalidRequest(field=_FIELD, rule=rule, value=arn)


_BATCH: Final = 10
DEFAULT_CONCURRENCY: Final = 50
"""Of the reaper: thousands of executions may be stopped at one go."""
_LEAST_AT_ONCE, _MOST_AT_ONCE = 2, 1000
"""What Lambda takes as the maximum concurrency of an SQS mapping."""
_TRIES_IN_A_VISIBILITY_TIMEOUT: Final = 6  # what the Lambda developer guide recommends
_EVERY_MACHINE: Final = "EveryMachine"
_EVERY_DURABLE_FUNCTION: Final = "EveryDurableFunction"


def check_concurrency(concurrency: int) -> None:
    """Checks how many functions of the reaper may run at once, as Lambda takes it."""
    rule = f"must be a whole number from {_LEAST_AT_ONCE} to {_MOST_AT_ONCE}"
    is_right = is_whole(concurrency, _LEAST_AT_ONCE, _MOST_AT_ONCE)
    require("reaper_concurrency", is_right, rule, concurrency)


class ExecutionReaper(Construct):
    """Frees the locks of executions that failed, timed out or were aborted, when that is reported.

    Guarantees:
        * The execution's waiters leave the queues, its locks go to the next waiters. A second
          pass finds what an acquire took that was still under way at the first.
        * Only acquisitions of that execution are freed, however often and in whatever order the
          events come. An execution that was redriven meanwhile is left alone.

    Not guaranteed: that the event arrives. Without it, and for Express workflows and direct
    callers, the lock is free when its lease is over and the next one asks.

    An event that ten tries could not handle stays in the dead-letter queue for two weeks. The
    messages name executions, without their inputs; both queues are encrypted. Only the reaper's
    rules and its function may send to the queue: not dead letters either.

    Attributes:
        function: frees the locks that an execution claimed.
        queue: the events, and the messages that ask for second passes.
        dead_letter_queue: the events that could not be delivered or handled.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, functions: FunctionFactory, concurrency: int
    ) -> None:
        """Declares the reaper; `LockService` does."""
        super().__init__(scope, construct_id)
        self._concurrency = concurrency
        timeout = Duration.seconds(FUNCTION_TIMEOUT_SECONDS * _TRIES_IN_A_VISIBILITY_TIMEOUT)
        self.queue, self.dead_letter_queue = reap_queues(self, visibility_timeout=timeout)
        self.function = self._reap_function(replace(functions, scope=self))
        self._rules = RulesBesideWatched(self)
        allow_rules(self.dead_letter_queue, self._rules.arns)
        allow_rules(self.queue)
        # Never without this: the permission above it is one for any rule.
        deny_all_but(self.queue, self._rules.arns, cast("iam.IRole", self.function.role))
        rule = self._rule(self, _EVERY_MACHINE, reported=OF_WORKFLOWS, detail={})
        self._rules.arns.append(rule.rule_arn)

    @property
    def watches_every_machine(self) -> bool:
        """Whether it frees the locks of all machines, and `watch` has not narrowed it."""
        return self.node.try_find_child(_EVERY_MACHINE) is not None

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Narrows the reaper to these state machines; see `LockService.watch`."""
        rule = "must name at least one state machine; reaper=False watches none"
        require("machines", machines, rule, [])
        for machine in machines:
            check_machine(machine, service=self)
        self._rules.require_room(OF_WORKFLOWS.source, machines, field="machines")
        every = self.node.try_find_child(_EVERY_MACHINE)
        if isinstance(every, events.Rule):
            self.node.try_remove_child(_EVERY_MACHINE)
            self._rules.arns.remove(every.rule_arn)
        for machine in machines:
            arn = machine.state_machine_arn
            # The children of a Distributed Map have the map's label in the ARN: machine/label.
            self._add_rule(machine, OF_WORKFLOWS, {"stateMachineArn": [arn, {"prefix": f"{arn}/"}]})

    def watch_durable(self, function: lambda_.IFunction) -> None:
        """Tells the reaper of the executions of a durable function; `grant_durable` does."""
        self._rules.require_room(OF_DURABLE_FUNCTIONS.source, [function], field="function")
        arn = function.function_arn
        # An event names the version that ran.
        detail = {"functionArn": [arn, {"prefix": f"{arn}:"}]}
        self._add_rule(function, OF_DURABLE_FUNCTIONS, detail)

    def watch_every_durable_function(self) -> None:
        """Tells the reaper of all durable functions of the account and region."""
        rule = self._rule(self, _EVERY_DURABLE_FUNCTION, reported=OF_DURABLE_FUNCTIONS, detail={})
        self._rules.arns.append(rule.rule_arn)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that could not be delivered or handled, by default the maximum of 5 minutes."""
        return self.dead_letter_queue.metric_approximate_number_of_messages_visible(**options)

    def metric_oldest_event(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Seconds that the oldest event has waited, by default the maximum of 5 minutes."""
        return self.queue.metric_approximate_age_of_oldest_message(**options)

    def _reap_function(self, functions: FunctionFactory) -> lambda_.Function:
        reap = functions.make(
            "Reap",
            description="Fairlock: frees the locks of workflows that ended without doing so",
            table_actions=(*HANDS_OVER, "ConditionCheckItem"),
            workflow_actions=WAKES,
            environment={REAP_QUEUE_VARIABLE: self.queue.queue_url},
        )
        # Lambda stops a function that sends itself messages after about 16 rounds. One stopped
        # execution may have more claims than that many rounds free. The function has a bound of
        # its own, `lambdas.reap_messages.MOST_ROUNDS`.
        functions.platform.allow_recursion(reap)
        self.queue.grant(reap, "sqs:SendMessage")
        reap.add_event_source(
            sources.SqsEventSource(
                self.queue,
                batch_size=_BATCH,
                max_concurrency=self._concurrency,
                report_batch_item_failures=True,
            )
        )
        return reap

    def _add_rule(
        self, watched: IResource, reported: StatusEvents, detail: Mapping[str, object]
    ) -> None:
        make = partial(self._rule, reported=reported, detail=detail)
        self._rules.add(watched, reported.source, detail, make=make)

    def _rule(
        self,
        scope: Construct,
        construct_id: str,
        name: str | None = None,
        *,
        reported: StatusEvents,
        detail: Mapping[str, object],
    ) -> events.Rule:
        rule = events.Rule(
            scope,
            construct_id,
            rule_name=name,
            description="Executions that end without releasing their locks, for Fairlock",
            event_pattern=reported.pattern(detail),
            targets=[ReaperTarget(self.queue, self.dead_letter_queue, reported)],
        )
        # An event frees locks unasked, so none may come again from an archive: the name of its
        # execution may have been used again. CDK's pattern has no such field.
        made = rule.node.default_child
        assert isinstance(made, CfnResource)  # noqa: S101 - a type
        made.add_property_override("EventPattern.replay-name", [{"exists": False}])
        return rule
