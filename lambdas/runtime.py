"""What the handlers share: the store, made once per environment, and the way they log and measure.

Importing this touches no network: clients are made at the first invocation.
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from leasehold.metrics import NAMESPACE, SERVICE, MetricName
from leasehold.protocol.model import HandOff
from leasehold.store.events import (
    ClaimNotRemoved,
    Event,
    Evicted,
    Extended,
    LivenessUnknown,
    PushUnknown,
)
from leasehold.workflows.step_functions import StepFunctions

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

    from leasehold.store.lock_store import LockStore


class _Provider(AmazonCloudWatchEMFProvider):
    """Publishes what there is.

    A renewal and an invalid request count nothing, which is no mistake; Powertools would warn about
    it, in a log line that is not JSON.
    """

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:  # noqa: FBT001, FBT002 - Powertools' signature
        if self.metric_set:
            super().flush_metrics(raise_on_empty_metrics)


logger: Final = Logger(service=SERVICE, utc=True)
metrics: Final = Metrics(provider=_Provider(namespace=NAMESPACE, service=SERVICE))

_SECONDS_TO_ANSWER: Final = 1.0
"""What is left of the invocation when retry_budget ends, so that the caller hears a typed error."""


def lock_store(invocation: LambdaContext) -> LockStore:
    """The store over the table named by LEASEHOLD_TABLE_NAME, patient until the invocation ends."""
    # With these comes boto3, most of the import time: not before it is needed.
    from leasehold.dynamodb.lock_table import LockTable  # noqa: PLC0415
    from leasehold.dynamodb.retry import RetryBudget  # noqa: PLC0415
    from leasehold.store.context import LockContext  # noqa: PLC0415
    from leasehold.store.lock_store import LockStore  # noqa: PLC0415

    remaining_seconds = invocation.get_remaining_time_in_millis() / 1000
    retry_budget = RetryBudget(deadline=time.monotonic() + remaining_seconds - _SECONDS_TO_ANSWER)
    table = LockTable(
        _client("dynamodb"), os.environ["LEASEHOLD_TABLE_NAME"], retry_budget=retry_budget
    )
    context = LockContext(
        table=table,
        workflows=workflows,
        observe=_observe,
        retry_budget=retry_budget,
    )
    return LockStore(context)


def send_message(queue_url: str, body: str, delay_seconds: int) -> None:
    """Sends a message that arrives after a delay."""
    _client("sqs").send_message(QueueUrl=queue_url, MessageBody=body, DelaySeconds=delay_seconds)


@cache  # Made when first needed: most invocations need only one of them.
def _client(service: Literal["dynamodb", "stepfunctions", "sqs"]) -> Any:  # noqa: ANN401 - one client or the other
    import boto3  # noqa: PLC0415 - see `lock_store`

    from leasehold.dynamodb.lock_table import CLIENT_CONFIG  # noqa: PLC0415 - same

    return boto3.client(service, config=CLIENT_CONFIG)


workflows: Final = StepFunctions(lambda: _client("stepfunctions"))


def count(name: MetricName, number: int = 1) -> None:
    """Adds to a count, unless there is nothing to add."""
    if number:
        metrics.add_metric(name=name.value, unit=MetricUnit.Count, value=number)


def measure_ms(name: MetricName, milliseconds: int) -> None:
    """Records a span."""
    metrics.add_metric(name=name.value, unit=MetricUnit.Milliseconds, value=milliseconds)


def fingerprint(owner_id: str) -> str:
    """Names an owner in logs, without the owner_id itself: that is the proof of ownership."""
    return hashlib.sha256(owner_id.encode()).hexdigest()[:12]


def _observe(event: Event) -> None:
    """Counts and logs what happens besides the answer."""
    match event:
        case HandOff(grant=grant, waited_ms=waited_ms, latency_ms=latency_ms):
            count(MetricName.GRANTED)
            count(MetricName.HANDED_OVER)
            measure_ms(MetricName.WAIT_TIME, waited_ms)
            measure_ms(MetricName.HAND_OFF_LATENCY, latency_ms)
            owner = {"lock_name": grant.lock_name, "owner": fingerprint(grant.owner_id)}
            waited = {"fencing_token": grant.fencing_token, "waited_ms": waited_ms}
            logger.info("handed over", extra={**owner, **waited})
        case Evicted(lock_name=lock_name, holders=holders):
            count(MetricName.TAKEN_OVER, holders)
            logger.warning("evicted", extra={"lock_name": lock_name, "holders": holders})
        case Extended(lock_name=lock_name):
            count(MetricName.EXTENDED)
            logger.info("extended", extra={"lock_name": lock_name})
        case LivenessUnknown(lock_name=lock_name, execution_arn=execution_arn):
            count(MetricName.LIVENESS_UNKNOWN)
            unknown = {"lock_name": lock_name, "execution_arn": execution_arn}
            logger.warning("liveness unknown", extra=unknown)
        case PushUnknown(lock_name=lock_name):
            count(MetricName.PUSH_UNKNOWN)
            logger.warning("push unknown", extra={"lock_name": lock_name})
        case ClaimNotRemoved(lock_name=lock_name, execution_arn=execution_arn):
            count(MetricName.CLAIM_NOT_REMOVED)
            left = {"lock_name": lock_name, "execution_arn": execution_arn}
            logger.warning("claim left", extra=left)
