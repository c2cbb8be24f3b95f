"""Asks Step Functions whether the workflow that a holder belongs to still runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.protocol.model import Liveness

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

LivenessOf = Callable[[str], Liveness]
"""From an execution ARN to what is known of the execution."""

_STILL_GOING: Final = frozenset({"RUNNING", "PENDING_REDRIVE"})
_OVER: Final = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})


def nobody_knows(_execution_arn: str) -> Liveness:
    """The answer of a caller who may not ask Step Functions: the workflow counts as running."""
    return Liveness.UNKNOWN


@dataclass(frozen=True, slots=True)
class Execution:
    """What Step Functions says about a workflow execution.

    Attributes:
        liveness: whether it runs.
        redrives: how often it was begun again after it had ended.
    """

    liveness: Liveness
    redrives: int = 0


Describe = Callable[[str], Execution]
"""From an execution ARN to what is known of the execution."""


def describe_execution(client: SFNClient) -> Describe:
    """A `Describe` that calls DescribeExecution, one request an answer.

    An execution that does not exist (any more: Step Functions forgets closed ones after 90 days) is
    over. Any other failure or status is `UNKNOWN`, never a guess: a throttle must not cost a holder
    its lock.
    """

    def describe(execution_arn: str) -> Execution:
        try:
            answer = client.describe_execution(
                executionArn=execution_arn, includedData="METADATA_ONLY"
            )
        except client.exceptions.ExecutionDoesNotExist:
            return Execution(Liveness.OVER)
        except (ClientError, BotoCoreError):
            return Execution(Liveness.UNKNOWN)
        redrives = answer.get("redriveCount", 0)
        if answer["status"] in _OVER:
            return Execution(Liveness.OVER, redrives)
        running = answer["status"] in _STILL_GOING
        return Execution(Liveness.RUNNING if running else Liveness.UNKNOWN, redrives)

    return describe


def execution_liveness(client: SFNClient) -> LivenessOf:
    """A `LivenessOf` that calls DescribeExecution."""
    describe = describe_execution(client)
    return lambda execution_arn: describe(execution_arn).liveness
