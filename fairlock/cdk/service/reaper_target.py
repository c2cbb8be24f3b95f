"""The events that the reaper is told of, and its queue as the target of their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import jsii
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_events import IRuleRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusEvents:
    """The events by which a service of AWS reports the ends of executions.

    Attributes:
        ends: the statuses of executions that ended without releasing.
        paths: where the event has the fields of the message to the reaper.
        message: that message, with the names of `paths` as placeholders.
    """

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
    paths={"arn": "$.detail.executionArn", "redrives": "$.detail.redriveCount"},
    message='{"detail": {"executionArn": "<arn>", "redriveCount": "<redrives>"}}',
)
OF_DURABLE_FUNCTIONS: Final = StatusEvents(
    source="aws.lambda",
    detail_type="Durable Execution Status Change",
    ends=("FAILED", "TIMED_OUT", "STOPPED"),
    paths={"arn": "$.detail.durableExecutionArn"},
    message='{"detail": {"executionArn": "<arn>"}}',
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
    """The part of an event that the reaper needs, without the execution's input and output.

    The placeholders are quoted, so that the message is JSON even if a field is missing.
    """

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
