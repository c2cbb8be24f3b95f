"""Saved queries of CloudWatch Logs Insights: the logs name the locks, which metrics do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aws_cdk import Names
from aws_cdk import aws_logs as logs
from constructs import Construct

from fairlock.metrics import LogMessage


def _any_of(*messages: LogMessage) -> str:
    return ", ".join(f'"{message}"' for message in messages)


_HISTORY: Final = _any_of(
    LogMessage.GRANTED,
    LogMessage.HANDED_OVER,
    LogMessage.REACQUIRED,
    LogMessage.RELEASED,
    LogMessage.EVICTED,
    LogMessage.RELEASED_BY_FORCE,
    LogMessage.NOT_HELD,
    LogMessage.LOST,
)
_LOSSES: Final = _any_of(
    LogMessage.NOT_HELD,
    LogMessage.LOST,
    LogMessage.EVICTED,
    LogMessage.RELEASED_BY_FORCE,
    LogMessage.LIVENESS_UNKNOWN,
)
WHO_HELD_IT: Final = f"""\
fields @timestamp, message, owner_name, execution_arn, fencing_token, held_ms, reason
| filter lock_name = "customer/1234"
| filter message in [{_HISTORY}]
| sort @timestamp asc
| limit 1000"""
LONGEST_WAITS: Final = f"""\
filter message in [{_any_of(LogMessage.QUEUED, LogMessage.REFUSED)}] and waited_ms > 0
| stats max(waited_ms) / 1000 as waited_seconds, latest(@timestamp) as last_asked, \
count_distinct(execution_arn) as executions by lock_name
| sort waited_seconds desc
| limit 20"""
LOST_LOCKS: Final = f"""\
fields @timestamp, lock_name, message, owner_name, execution_arn, fencing_token, requested_by, \
reason
| filter message in [{_LOSSES}]
| sort @timestamp desc
| limit 200"""
QUERIES: Final[Mapping[str, str]] = {
    "Who held a lock": WHO_HELD_IT,
    "Locks with the longest waits": LONGEST_WAITS,
    "Lost and taken away": LOST_LOCKS,
}


def save_queries(scope: Construct, log_group_names: Sequence[str]) -> None:
    """Saves the queries over these log groups."""
    folder = Names.unique_resource_name(scope, max_length=80)
    for name, query in QUERIES.items():
        logs.CfnQueryDefinition(
            scope,
            name.title().replace(" ", ""),
            name=f"{folder}/{name}",
            query_string=query,
            log_group_names=list(log_group_names),
        )
