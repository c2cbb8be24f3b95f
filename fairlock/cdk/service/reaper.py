"""`ExecutionReaper`: frees the locks of workflow executions that ended without doing so.

EventBridge rule ──▶ queue ──▶ Reap     a first pass at once, a second one a little later
│                │
└────────────────┴─────▶ dead-letter queue
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Unpack

from aws_cdk import ArnFormat, Duration, IResource, Names, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS, FunctionFactory
from fairlock.cdk.service.metrics import MetricOptions
from fairlock.cdk.service.reap_queue import allow_rules, deny_all_but, reap_queues
from fairlock.cdk.service.reaper_target import (
    OF_DURABLE_FUNCTIONS,
    OF_WORKFLOWS,
    ReaperTarget,
    StatusEvents,
)
from fairlock.cdk.service.watched_machines import check_machine
from fairlock.errors import InvalidRequest
from fairlock.metrics import REAP_QUEUE_VARIABLE

_BATCH: Final = 10
_MOST_AT_ONCE: Final = 5
"""Thousands of executions may be stopped at one go: this many functions ask Step Functions about
them, whose throttle for DescribeExecution is one for the account, and free locks."""
_TRIES_IN_A_VISIBILITY_TIMEOUT: Final = 6  # what the Lambda developer guide recommends
_EVERY_MACHINE: Final = "EveryMachine"
_EVERY_DURABLE_FUNCTION: Final = "EveryDurableFunction"


class ExecutionReaper(Construct):
    """Frees the locks of executions that failed, timed out or were aborted, when that is reported.

    Guarantees:
        * The execution's waiters leave the queues, its locks go to the next waiters. A second
          pass finds what an acquire took that was still under way at the first.
        * Only acquisitions of that execution are freed, however often and in whatever order the
          events come. An execution that was redriven meanwhile is left alone.

    Not guaranteed:
        * That the event arrives: status events are best effort. Without it the lock is free when
          its lease is over and the next one asks.
        * Anything for Express workflows and direct callers, of which there are no such events.

    An event that ten tries could not handle stays in the dead-letter queue for two weeks; the locks
    are then free when their lease is over. The messages name executions, and do not contain their
    inputs; both queues are encrypted. The queue's policy lets only the reaper's rules and its
    function send, and denies everybody else: dead letters cannot be sent back to the queue.

    Attributes:
        function: frees the locks that an execution claimed.
        queue: the events, and the messages that ask for second passes.
        dead_letter_queue: the events that could not be delivered or handled.
    """

    def __init__(self, scope: Construct, construct_id: str, *, functions: FunctionFactory) -> None:
        """Declares the reaper; `LockService` does."""
        super().__init__(scope, construct_id)
        timeout = Duration.seconds(FUNCTION_TIMEOUT_SECONDS * _TRIES_IN_A_VISIBILITY_TIMEOUT)
        self.queue, self.dead_letter_queue = reap_queues(self, visibility_timeout=timeout)
        self.function = self._reap_function(replace(functions, scope=self))
        self._rule_arns: list[str] = []
        for queue in (self.queue, self.dead_letter_queue):
            allow_rules(queue, self._rule_arns)
        if self.function.role is not None:
            deny_all_but(self.queue, self._rule_arns, self.function.role)
        rule = self._rule(self, _EVERY_MACHINE, OF_WORKFLOWS, detail={})
        self._rule_arns.append(rule.rule_arn)

    @property
    def watches_every_machine(self) -> bool:
        """Whether it frees the locks of all machines, and `watch` has not narrowed it."""
        return self.node.try_find_child(_EVERY_MACHINE) is not None

    def watch(self, *machines: sfn.IStateMachine) -> None:
        """Narrows the reaper to these state machines; see `LockService.watch`."""
        if not machines:
            rule = "must name at least one state machine; reaper=False watches none"
            raise InvalidRequest(field="machines", rule=rule, value=[])
        for machine in machines:
            check_machine(machine, service=self)
        every = self.node.try_find_child(_EVERY_MACHINE)
        if isinstance(every, events.Rule):
            self.node.try_remove_child(_EVERY_MACHINE)
            self._rule_arns.remove(every.rule_arn)
        for machine in machines:
            arn = machine.state_machine_arn
            # The children of a Distributed Map have the map's label in the ARN: machine/label.
            detail = {"stateMachineArn": [arn, {"prefix": f"{arn}/"}]}
            self._rule_beside(machine, OF_WORKFLOWS, detail)

    def watch_durable(self, function: lambda_.IFunction) -> None:
        """Tells the reaper of the executions of a durable function; `grant_durable` does."""
        arn = function.function_arn
        # An event names the version that ran.
        detail = {"functionArn": [arn, {"prefix": f"{arn}:"}]}
        self._rule_beside(function, OF_DURABLE_FUNCTIONS, detail)

    def watch_every_durable_function(self) -> None:
        """Tells the reaper of all durable functions of the account and region."""
        rule = self._rule(self, _EVERY_DURABLE_FUNCTION, OF_DURABLE_FUNCTIONS, detail={})
        self._rule_arns.append(rule.rule_arn)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that could not be delivered or handled, by default the maximum of 5 minutes.

        An alarm above zero is worth having.
        """
        return self.dead_letter_queue.metric_approximate_number_of_messages_visible(**options)

    def _reap_function(self, functions: FunctionFactory) -> lambda_.Function:
        reap = functions.make(
            "Reap",
            description="Fairlock: frees the locks of workflows that ended without doing so",
            table_actions=["Query", "UpdateItem", "DeleteItem", "GetItem", "ConditionCheckItem"],
            workflow_actions=["DescribeExecution", "SendTaskSuccess"],
            environment={
                REAP_QUEUE_VARIABLE: self.queue.queue_url,
            },
            # Lambda stops a function that sends itself messages after about 16 rounds. One stopped
            # execution may have more claims than that many rounds free. The function has a bound of
            # its own, `lambdas.reap_messages.MOST_ROUNDS`.
            recursive_loop=lambda_.RecursiveLoop.ALLOW,
        )
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

    def _rule_beside(
        self, watched: IResource, reported: StatusEvents, detail: Mapping[str, object]
    ) -> None:
        """Makes a rule in the stack of what is watched, which so refers to the queue alone."""
        names = [Names.unique_resource_name(end, max_length=80) for end in (watched, self)]
        construct_id = "ReapedBy".join(names)
        if watched.stack.node.try_find_child(construct_id) is None:
            name = self._rule_name(watched.stack, construct_id)
            self._rule(watched.stack, construct_id, reported, detail=detail, name=name)
            self._rule_arns.append(self._rule_arn(name))

    def _rule(
        self,
        scope: Construct,
        construct_id: str,
        reported: StatusEvents,
        *,
        detail: Mapping[str, object],
        name: str | None = None,
    ) -> events.Rule:
        return events.Rule(
            scope,
            construct_id,
            rule_name=name,
            description="Executions that end without releasing their locks, for Fairlock",
            event_pattern=reported.pattern(detail),
            targets=[ReaperTarget(self.queue, self.dead_letter_queue, reported)],
        )

    def _rule_name(self, stack: Stack, construct_id: str) -> str:
        """A name that is known before the rule is deployed, so that the queue's policy can name it.

        Its ARN as a reference would make the service's stack depend on the machine's.
        """
        places = (Stack.of(self).stack_name, stack.stack_name, construct_id)
        known = [place for place in places if not Token.is_unresolved(place)]
        digest = hashlib.sha256("\0".join(known).encode()).hexdigest()
        return f"fairlock-reaper-{digest[:32]}"

    def _rule_arn(self, name: str) -> str:
        return Stack.of(self).format_arn(
            service="events",
            resource="rule",
            resource_name=name,
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
