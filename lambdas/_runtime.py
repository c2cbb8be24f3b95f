"""What the handlers share: the store, made once per environment, and the way they log and measure.

Importing this touches no network: clients are made at the first invocation.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from leasehold.metrics import NAMESPACE, SERVICE, MetricName
from leasehold.store import LockStore

logger: Final = Logger(service=SERVICE, utc=True)
metrics: Final = Metrics(namespace=NAMESPACE, service=SERVICE)


@cache
def lock_store() -> LockStore:
    """The store over the table of the environment variable LEASEHOLD_TABLE_NAME."""
    import boto3  # noqa: PLC0415 - a network library, and most of the import time: not before it is needed

    from leasehold.context import LockContext  # noqa: PLC0415 - same
    from leasehold.dynamo import CLIENT_CONFIG, LockTable  # noqa: PLC0415 - same
    from leasehold.liveness import execution_liveness  # noqa: PLC0415 - same

    table = LockTable(
        boto3.client("dynamodb", config=CLIENT_CONFIG), os.environ["LEASEHOLD_TABLE_NAME"]
    )
    executions = boto3.client("stepfunctions", config=CLIENT_CONFIG)
    return LockStore(LockContext(table=table, liveness_of=execution_liveness(executions)))


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
