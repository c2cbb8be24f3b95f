"""`ExecutionReaper`: frees the locks of workflow executions that ended without doing so.

EventBridge rule ──▶ queue ──▶ Reap     a first pass at once, a second one a little later
│                │
└────────────────┴─────▶ dead-letter queue

Only its own rules and its function may send to the queues. It can watch Standard workflows, of its
own account and region, and durable functions.
"""

from __future__ import annotations

from typing import Any, Final, Unpack, cast

from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk.fragments import first_difference, is_whole, require
from fairlock.cdk.service.functions import FUNCTION_TIMEOUT_SECONDS, FunctionFactory
from fairlock.cdk.service.reaper_rules import OF_DURABLE_FUNCTIONS, OF_WORKFLOWS, ReaperRules
from fairlock.cdk.service.service_base import MetricOptions
from fairlock.errors import InvalidRequest
from fairlock.names import REAP_QUEUE_VARIABLE

_DAYS: Final = 14
"""The most that SQS keeps a message: an alarm must be heard before events are lost."""
_MOST_TRIES: Final = 10
"""One each visibility timeout: twenty minutes, longer than throttles of Step Functions last."""


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
        self.dead_letter_queue = self._new_queue("DeadLetterQueue")
        dead_letters = sqs.DeadLetterQueue(
            queue=self.dead_letter_queue, max_receive_count=_MOST_TRIES
        )
        self.queue = self._new_queue(
            "Queue", visibility_timeout=timeout, dead_letter_queue=dead_letters
        )
        self.function = self._reap_function(functions)
        self._rules = ReaperRules(
            self,
            queue=self.queue,
            dead_letter_queue=self.dead_letter_queue,
            role=cast("iam.IRole", self.function.role),
        )
        self._rules.add_for_all(_EVERY_MACHINE, OF_WORKFLOWS)

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
        self._rules.require_room(OF_WORKFLOWS, machines, field="machines")
        self._rules.remove_for_all(_EVERY_MACHINE)
        for machine in machines:
            self._rules.add(OF_WORKFLOWS, machine, machine.state_machine_arn)

    def watch_durable(self, function: lambda_.IFunction) -> None:
        """Tells the reaper of the executions of a durable function; `grant_durable` does."""
        self._rules.require_room(OF_DURABLE_FUNCTIONS, [function], field="function")
        self._rules.add(OF_DURABLE_FUNCTIONS, function, function.function_arn)

    def watch_every_durable_function(self) -> None:
        """Tells the reaper of all durable functions of the account and region."""
        self._rules.add_for_all("EveryDurableFunction", OF_DURABLE_FUNCTIONS)

    def metric_dead_letters(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Events that could not be delivered or handled, by default the maximum of 5 minutes."""
        return self.dead_letter_queue.metric_approximate_number_of_messages_visible(**options)

    def metric_oldest_event(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Seconds that the oldest event has waited, by default the maximum of 5 minutes."""
        return self.queue.metric_approximate_age_of_oldest_message(**options)

    def _new_queue(self, construct_id: str, **props: Any) -> sqs.Queue:  # noqa: ANN401 - a queue's
        return sqs.Queue(
            self,
            construct_id,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(_DAYS),
            **props,
        )

    def _reap_function(self, functions: FunctionFactory) -> lambda_.Function:
        environment = {REAP_QUEUE_VARIABLE: self.queue.queue_url}
        reap = functions.make("reap", scope=self, environment=environment)
        # Lambda stops a function that sends itself messages after about 16 rounds. One stopped
        # execution may have more claims than that many rounds free. The function has a bound of
        # its own, `lambdas.reap_messages.MOST_ROUNDS`.
        functions.allow_recursion(reap)
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
