"""`fairlock doctor`: whether a table is fit to lock with. It reads only, and writes nothing.

A permission to write is probed on condition of an item that does not exist, under a key that no
lock uses: AWS checks the permission, then the condition, and refuses. Other tables of the same base
name may be of the same service: CloudFormation ends a table's name with random letters.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlock.aws.retry import error_code, may_pass, misconfigured
from fairlock.cli.target import Target, principal
from fairlock.clock import NO_DATE, AwsClock, Clock
from fairlock.protocol.description import lock_name_of
from fairlock.protocol.schema import (
    FENCING_TOKEN,
    PARTITION_KEY,
    SORT_KEY,
    STATE,
    TTL_ATTRIBUTE,
    number,
    token_seed,
)
from fairlock.text import printable

_DENIED: Final = {"AccessDeniedException", "AccessDenied", "KMSAccessDeniedException"}
_REFUSED_BY_CONDITION: Final = {
    "ConditionalCheckFailedException",
    "TransactionCanceledException",
    "ExecutionDoesNotExist",
}
"""AWS allowed the request, and answered that there is nothing."""
_IF_THERE: Final = {
    "ConditionExpression": "attribute_exists(#pk)",
    "ExpressionAttributeNames": {"#pk": PARTITION_KEY},
}


@dataclass(frozen=True, slots=True)
class Probe:
    """A permission, whether locks can be held without it, and what does not work then."""

    action: str
    is_needed: bool
    without: str


_LOCKING: Final = "a LockClient needs it; grant what docs/client.md lists"
PROBES: Final = (
    Probe("GetItem", is_needed=True, without=_LOCKING),
    Probe("Query", is_needed=True, without=_LOCKING),
    Probe("UpdateItem", is_needed=True, without=_LOCKING),
    Probe("PutItem", is_needed=True, without="owners cannot wait in the queue without it"),
    Probe("DeleteItem", is_needed=True, without="locks cannot be handed over without it"),
    Probe("ConditionCheckItem", is_needed=False, without="needed for guarded writes"),
    Probe("Scan", is_needed=False, without="needed for ls and watch only"),
    Probe(
        "DescribeExecution",
        is_needed=False,
        without="the lock of a workflow that died stays taken for longer",
    ),
)


def _permission(target: Target, dynamodb: Any, probe: Probe, table_arn: str | None) -> Finding:  # noqa: ANN401 - a client of boto3's
    """Whether AWS allows the probe's action; nothing is written."""
    try:
        _send(target, dynamodb, probe.action, table_arn)
    except (BotoCoreError, ClientError, LookupError) as error:
        code = error_code(error)
        if code in _DENIED:
            verdict = Verdict.FAILURE if probe.is_needed else Verdict.WARNING
            return Finding(probe.action, verdict, f"denied: {probe.without}")
        if code not in _REFUSED_BY_CONDITION:
            return Finding(probe.action, Verdict.UNKNOWN, str(error))
    return Finding(probe.action, Verdict.OK, "allowed")


def _send(target: Target, dynamodb: Any, action: str, table_arn: str | None) -> None:  # noqa: ANN401 - same
    # A key that no lock has, and new each time: beside whatever runs, a write finds no item, its
    # condition fails, and nothing is written.
    key: dict[str, Any] = {PARTITION_KEY: {"S": f"PROBE#{uuid.uuid4()}"}, SORT_KEY: {"S": "PROBE"}}
    table: dict[str, Any] = {"TableName": target.table}
    match action:
        case "DescribeExecution" if table_arn is None:
            raise LookupError("without dynamodb:DescribeTable the account is not known")
        case "DescribeExecution":
            _, partition, _, region, account, _ = str(table_arn).split(":", 5)
            arn = f"arn:{partition}:states:{region}:{account}:execution:fairlock-probe:none"
            target.client("stepfunctions").describe_execution(executionArn=arn)
        case "GetItem":
            dynamodb.get_item(**table, Key=key)
        case "Query":
            dynamodb.query(
                **table,
                KeyConditionExpression="#pk = :pk",
                ExpressionAttributeNames={"#pk": PARTITION_KEY},
                ExpressionAttributeValues={":pk": key[PARTITION_KEY]},
            )
        case "Scan":
            dynamodb.scan(**table, Limit=1)
        case "UpdateItem":
            dynamodb.update_item(**table, Key=key, **_IF_THERE)
        case "PutItem":
            dynamodb.put_item(**table, Item=key, **_IF_THERE)
        case "DeleteItem":
            dynamodb.delete_item(**table, Key=key, **_IF_THERE)
        case _:
            check = {"ConditionCheck": {**table, "Key": key, **_IF_THERE}}
            dynamodb.transact_write_items(TransactItems=[check])


_MOST_TABLES: Final = 2_500
"""An account has no more by default."""


def other_tables(dynamodb: Any, table: Mapping[str, Any]) -> list[str]:  # noqa: ANN401 - a client of boto3's
    """The names of other lock tables that have the same base name."""
    own = table["TableName"]
    start, dash, ending = own.rpartition("-")
    if not dash or not ending.isalnum():
        return []
    return [
        name
        for name in _names(dynamodb)
        if name != own and name.startswith(f"{start}-")
        if _key_of(dynamodb.describe_table(TableName=name)["Table"])["HASH"] == PARTITION_KEY
    ]


def _key_of(table: Mapping[str, Any]) -> dict[str, str]:
    return {each["KeyType"]: each["AttributeName"] for each in table.get("KeySchema", [])}


def _names(dynamodb: Any) -> Iterator[str]:  # noqa: ANN401 - same
    request: dict[str, Any] = {}
    seen = 0
    while seen < _MOST_TABLES:
        answer = dynamodb.list_tables(**request)
        seen += len(answer["TableNames"])
        yield from answer["TableNames"]
        if "LastEvaluatedTableName" not in answer:
            return
        request = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}


_MOST_SECONDS_WRONG: Final = 60


class Verdict(Enum):
    """What a check has found, with the word and the colour by which it is shown."""

    OK = ("ok", "green")
    UNKNOWN = ("not checked", "dim")
    WARNING = ("warning", "yellow")
    FAILURE = ("FAILURE", "red")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was checked, and what to do about it."""

    check: str
    verdict: Verdict
    text: str


def doctor(target: Target, console: Console, clock: Clock, *, as_json: bool = False) -> int:
    """Prints a line for each check, or an object; returns 0, or 1 if there is a failure."""
    findings = list(examine(target, clock))
    status = int(any(finding.verdict is Verdict.FAILURE for finding in findings))
    if as_json:
        told = [
            {"check": one.check, "verdict": one.verdict.name.lower(), "text": one.text}
            for one in findings
        ]
        place = {"table": target.table, "region": target.region_name()}
        console.file.write(json.dumps({**place, "fit": status == 0, "findings": told}) + "\n")
        return status
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=11, no_wrap=True)
    table.add_column(width=18, no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        word, colour = finding.verdict.value
        table.add_row(Text(word, colour), finding.check, Text(printable(finding.text)))
    console.print(Text(target.place(), "bold"))
    console.print(table)
    return status


def examine(target: Target, clock: Clock) -> Iterator[Finding]:
    """All checks, in their order."""
    dynamodb = target.client("dynamodb")
    # The account is part of the table's place: most tables that are "not there" are elsewhere.
    arn = principal(target)
    asked = Verdict.UNKNOWN if arn is None else Verdict.OK
    yield Finding("caller", asked, arn or "STS did not say who is asking")
    sent, described = clock.monotonic(), None
    try:
        answer = described = dynamodb.describe_table(TableName=target.table)
    except (BotoCoreError, ClientError) as error:
        finding = _no_table(error, target)
        yield finding
        if finding.verdict is Verdict.FAILURE:
            return
        answer = getattr(error, "response", {})
    aws_clock = AwsClock(clock)
    url = dynamodb.meta.endpoint_url
    dated = aws_clock.date_ms(answer, sent=sent, endpoint_url=url) is not None
    if dated:
        yield _clock(aws_clock, wall_ms=clock.wall_ms())
    elif described is None:
        yield Finding("clock", Verdict.UNKNOWN, "the refusal has no Date")
    else:
        yield Finding("clock", Verdict.FAILURE, NO_DATE)
    if described is not None:
        yield _key(described["Table"])
        if "RestoreSummary" in described["Table"]:
            yield _attempted("backup", lambda: _restored(dynamodb, described["Table"]))
    yield _attempted("TTL", lambda: _ttl(dynamodb.describe_time_to_live(TableName=target.table)))
    table = {} if described is None else described["Table"]
    for probe in PROBES:
        yield _permission(target, dynamodb, probe, table.get("TableArn"))
    if described is not None:
        yield _attempted("second table", lambda: _second(other_tables(dynamodb, table)))


def _no_table(error: Exception, target: Target) -> Finding:
    code = error_code(error)
    if code == "AccessDeniedException":
        needed = "needs dynamodb:DescribeTable, which locking does not"
        return Finding("table", Verdict.UNKNOWN, f"{needed} ({error})")
    if code == "ResourceNotFoundException":
        advice = "there is no such table: check name, account and region, or make one with "
        return Finding("table", Verdict.FAILURE, f"{advice}`fairlock create-table`")
    if may_pass(error):
        return Finding("table", Verdict.FAILURE, f"AWS does not answer: {error}")
    # AWS has answered, or was not asked: for want of credentials, for instance.
    told = misconfigured(error, table_name=target.table, region=target.region_name())
    return Finding("table", Verdict.FAILURE, str(told))


def _attempted(check: str, examine: Callable[[], Finding]) -> Finding:
    try:
        return examine()
    except (BotoCoreError, ClientError) as error:
        return Finding(check, Verdict.UNKNOWN, str(error))


def _clock(aws_clock: AwsClock, *, wall_ms: int) -> Finding:
    """By how much the clock of this machine differs from AWS's; no lease depends on that."""
    earliest_ms, latest_ms = aws_clock.earliest_ms(), aws_clock.latest_ms()
    if earliest_ms is None or latest_ms is None:
        text = (
            "DynamoDB's answers have no Date, so this machine's clock times the leases: it must be "
            "within 1 s of the other clients' clocks"
        )
        return Finding("clock", Verdict.WARNING, text)
    behind_s, ahead_s = (earliest_ms - wall_ms) / 1000, (wall_ms - latest_ms) / 1000
    wrong_s = max(behind_s, ahead_s)
    if wrong_s <= 0:
        return Finding(
            "clock", Verdict.OK, "leases are timed by the AWS clock; this machine's clock agrees"
        )
    way = "behind" if behind_s > 0 else "ahead of"
    text = f"at least {wrong_s:.1f} s {way} the AWS clock, which times the leases"
    if wrong_s < _MOST_SECONDS_WRONG:
        return Finding("clock", Verdict.OK, text)
    refused = "AWS refuses requests from 5 minutes on: let a time service set the clock"
    return Finding("clock", Verdict.WARNING, f"{text}; {refused}")


def _key(fields: Mapping[str, Any]) -> Finding:
    key = _key_of(fields)
    kinds = {e["AttributeName"]: e["AttributeType"] for e in fields.get("AttributeDefinitions", [])}
    right = {"HASH": PARTITION_KEY, "RANGE": SORT_KEY}
    if key != right or {kinds.get(PARTITION_KEY), kinds.get(SORT_KEY)} != {"S"}:
        text = f"must be ({PARTITION_KEY}, {SORT_KEY}), both strings: this is no lock table"
        return Finding("table key", Verdict.FAILURE, text)
    if fields.get("Replicas"):
        text = "a global table: two regions may grant the same lock; use one region's table"
        if fields.get("MultiRegionConsistency") == "STRONG":
            text = (
                "a global table with strong consistency: DynamoDB refuses transactions there, "
                "which workflows need, and TTL; use one region's table"
            )
        return Finding("table key", Verdict.FAILURE, text)
    return Finding("table key", Verdict.OK, f"({PARTITION_KEY}, {SORT_KEY})")


def _restored(dynamodb: Any, table: Mapping[str, Any]) -> Finding:  # noqa: ANN401 - a client of boto3's
    """Whether a table from a backup has old locks; reads the table.

    A lock begins its fencing tokens with the time in microseconds, and never grants a million a
    second: a token below the backup's time is of a lock that was in the backup.
    """
    at = table["RestoreSummary"]["RestoreDateTime"]
    since = f"restored from a backup as of {at}: "
    scan = {
        "TableName": table["TableName"],
        "FilterExpression": "#sk = :state AND #token < :then",
        "ExpressionAttributeNames": {"#sk": SORT_KEY, "#token": FENCING_TOKEN},
        "ExpressionAttributeValues": {
            ":state": {"S": STATE},
            ":then": number(token_seed(round(at.timestamp() * 1000))),
        },
    }
    while True:
        page = dynamodb.scan(**scan)
        if page["Items"]:
            name = lock_name_of(page["Items"][0])
            text = f"{since}fencing tokens of lock {name!r}, for one, may be granted again; delete "
            advice = "all locks of the backup, or use an empty table (docs/runbook.md)"
            return Finding("backup", Verdict.WARNING, f"{text}{advice}")
        if "LastEvaluatedKey" not in page:
            return Finding("backup", Verdict.OK, f"{since}no lock of that backup is left")
        scan["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def _ttl(answer: Mapping[str, Any]) -> Finding:
    found = answer["TimeToLiveDescription"]
    attribute, status = found.get("AttributeName"), found.get("TimeToLiveStatus")
    if status not in {"ENABLED", "ENABLING"}:
        text = f"off: items stay for ever; switch it on for {TTL_ATTRIBUTE!r}"
        return Finding("TTL", Verdict.WARNING, f"{text} (`fairlock create-table` does)")
    if attribute != TTL_ATTRIBUTE:
        text = f"on {attribute!r}, and must be on {TTL_ATTRIBUTE!r}, or off"
        return Finding("TTL", Verdict.FAILURE, text)
    return Finding("TTL", Verdict.OK, f"on {attribute!r}")


def _second(names: list[str]) -> Finding:
    if not names:
        return Finding("second table", Verdict.OK, "none has a name like this one's")
    text = f"{', '.join(names)}: another table of the same service? Locks of two tables do not "
    return Finding("second table", Verdict.WARNING, f"{text}exclude each other")
