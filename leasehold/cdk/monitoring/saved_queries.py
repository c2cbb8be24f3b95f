"""Saved queries of CloudWatch Logs Insights: the logs name the locks, which metrics do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import Names
from aws_cdk import aws_logs as logs
from constructs import Construct

WHO_HELD_IT: Final = """\
fields @timestamp, message, owner_name, execution_arn, fencing_token, held_ms, reason
| filter lock_name = "customer/1234"
| filter message in ["granted", "handed over", "released", "evicted", "released by force", \
"not held"]
| sort @timestamp asc
| limit 1000"""
LONGEST_WAITS: Final = """\
filter message in ["queued", "refused"] and waited_ms > 0
| stats max(waited_ms) / 1000 as waited_seconds, latest(@timestamp) as last_asked, \
count_distinct(execution_arn) as executions by lock_name
| sort waited_seconds desc
| limit 20"""
LOST_LOCKS: Final = """\
fields @timestamp, lock_name, message, owner_name, execution_arn, fencing_token, requested_by, \
reason
| filter message in ["not held", "evicted", "released by force", "liveness unknown"]
| sort @timestamp desc
| limit 200"""
QUERIES: Final[Mapping[str, str]] = {
    "Who held a lock": WHO_HELD_IT,
    "Locks with the longest waits": LONGEST_WAITS,
    "Lost and taken away": LOST_LOCKS,
}


def save_queries(scope: Construct, log_group_names: Sequence[str] | None) -> None:
    """Saves the queries; without names of log groups the reader chooses these in the console."""
    folder = Names.unique_resource_name(scope, max_length=80)
    for name, query in QUERIES.items():
        logs.CfnQueryDefinition(
            scope,
            name.title().replace(" ", ""),
            name=f"{folder}/{name}",
            query_string=query,
            log_group_names=None if log_group_names is None else list(log_group_names),
        )
