"""Asks Step Functions whether the workflow that a holder belongs to still runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from leasehold.model import Liveness

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

LivenessOf = Callable[[str], Liveness]
"""From an execution ARN to what is known of the execution."""

_STILL_GOING: Final = frozenset({"RUNNING", "PENDING_REDRIVE"})
_OVER: Final = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"})


def nobody_knows(_execution_arn: str) -> Liveness:
    """The answer of a caller who may not ask Step Functions: the workflow counts as running."""
    return Liveness.UNKNOWN


def execution_liveness(client: SFNClient) -> LivenessOf:
    """A `LivenessOf` that calls DescribeExecution, one request an answer.

    An execution that does not exist (any more: Step Functions forgets closed ones after 90 days) is
    over. Any other failure or status is `UNKNOWN`, never a guess: a throttle must not cost a holder
    its lock.
    """

    def liveness_of(execution_arn: str) -> Liveness:
        try:
            answer = client.describe_execution(
                executionArn=execution_arn, includedData="METADATA_ONLY"
            )
        except client.exceptions.ExecutionDoesNotExist:
            return Liveness.OVER
        except (ClientError, BotoCoreError):
            return Liveness.UNKNOWN
        if answer["status"] in _OVER:
            return Liveness.OVER
        return Liveness.RUNNING if answer["status"] in _STILL_GOING else Liveness.UNKNOWN

    return liveness_of
