"""The target of the reaper's rules: its queue, with a message that only names the execution."""

from __future__ import annotations

import jsii
from aws_cdk import aws_events as events
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_events import IRuleRef


@jsii.implements(events.IRuleTarget)
class ReaperTarget:
    """A queue whose policy names the rules; CDK's own target would refer to each rule."""

    def __init__(self, queue: sqs.IQueue, dead_letter_queue: sqs.IQueue) -> None:
        """Takes the queue of the events, and that of the events it could not get."""
        self._queue = queue
        self._dead_letter_queue = dead_letter_queue

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
            input=_NameOfExecution(),
        )


class _NameOfExecution(events.RuleTargetInput):
    """The part of an event that the reaper needs, without the execution's input and output.

    The placeholders are quoted, so that the message is JSON even if a field is missing.
    """

    def bind(
        self,
        rule: IRuleRef,  # noqa: ARG002 - the base class's
    ) -> events.RuleTargetInputProperties:
        return events.RuleTargetInputProperties(
            input_paths_map={"arn": "$.detail.executionArn", "redrives": "$.detail.redriveCount"},
            input_template='{"detail": {"executionArn": "<arn>", "redriveCount": "<redrives>"}}',
        )
