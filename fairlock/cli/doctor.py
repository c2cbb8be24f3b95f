"""`fairlock doctor`: whether a table is fit to lock with. Reads only; no probe writes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairlock.cli.caller import principal
from fairlock.cli.probes import PROBES, Probe, is_allowed
from fairlock.cli.second_tables import other_tables
from fairlock.cli.target import Target
from fairlock.clock import Clock
from fairlock.dynamodb.aws_clock import NO_DATE, AwsClock
from fairlock.dynamodb.failures import error_code, may_pass, misconfigured
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY, TTL_ATTRIBUTE
from fairlock.text import printable

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


def doctor(target: Target, console: Console, clock: Clock) -> int:
    """Prints a line for each check; returns 0, or 1 if something must be mended."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(width=11, no_wrap=True)
    table.add_column(width=18, no_wrap=True)
    table.add_column(overflow="fold")
    findings = list(examine(target, clock))
    for finding in findings:
        word, colour = finding.verdict.value
        table.add_row(Text(word, colour), finding.check, Text(printable(finding.text)))
    console.print(Text(target.place(), "bold"))
    console.print(table)
    return int(any(finding.verdict is Verdict.FAILURE for finding in findings))


def examine(target: Target, clock: Clock) -> Iterator[Finding]:
    """All checks, in their order.

    Raises:
        LockStoreMisconfigured: no client can be made, for want of a region for instance.
    """
    dynamodb = target.client("dynamodb")
    yield _who(principal(target))
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
    yield _attempted("TTL", lambda: _ttl(dynamodb.describe_time_to_live(TableName=target.table)))
    arn = None if described is None else described["Table"]["TableArn"]
    for probe in PROBES:
        yield _permission(target, dynamodb, probe, arn)
    if described is not None:
        table = described["Table"]
        yield _attempted("second table", lambda: _second(other_tables(dynamodb, table)))


def _who(arn: str | None) -> Finding:
    """The account is part of the table's place: most tables that are "not there" are elsewhere."""
    if arn is None:
        return Finding("caller", Verdict.UNKNOWN, "STS did not say who is asking")
    return Finding("caller", Verdict.OK, arn)


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
    """The finding of a check, or that it was not possible."""
    try:
        return examine()
    except (BotoCoreError, ClientError) as error:
        return Finding(check, Verdict.UNKNOWN, str(error))


def _clock(aws_clock: AwsClock, *, wall_ms: int) -> Finding:
    """By how much the clock of this machine differs from AWS's; no lease depends on that."""
    earliest_ms, latest_ms = aws_clock.earliest_ms(), aws_clock.latest_ms()
    if earliest_ms is None or latest_ms is None:
        text = "DynamoDB's answers have no Date: leases go by this machine's clock, which must be "
        return Finding("clock", Verdict.WARNING, f"{text}within 1 s of those of all other clients")
    behind_s, ahead_s = (earliest_ms - wall_ms) / 1000, (wall_ms - latest_ms) / 1000
    wrong_s = max(behind_s, ahead_s)
    if wrong_s <= 0:
        return Finding("clock", Verdict.OK, "leases go by AWS's, and this machine's agrees")
    way = "behind" if behind_s > 0 else "ahead of"
    text = f"at least {wrong_s:.1f} s {way} AWS's, by which leases go all the same"
    if wrong_s < _MOST_SECONDS_WRONG:
        return Finding("clock", Verdict.OK, text)
    refused = "AWS refuses requests from 5 minutes on: let a time service set this machine's clock"
    return Finding("clock", Verdict.WARNING, f"{text}; {refused}")


def _key(fields: Mapping[str, Any]) -> Finding:
    key = {e["KeyType"]: e["AttributeName"] for e in fields.get("KeySchema", [])}
    kinds = {e["AttributeName"]: e["AttributeType"] for e in fields.get("AttributeDefinitions", [])}
    right = {"HASH": PARTITION_KEY, "RANGE": SORT_KEY}
    if key != right or {kinds.get(PARTITION_KEY), kinds.get(SORT_KEY)} != {"S"}:
        text = f"must be ({PARTITION_KEY}, {SORT_KEY}), both strings: this is no lock table"
        return Finding("key", Verdict.FAILURE, text)
    if fields.get("Replicas"):
        text = "a global table: two regions may grant the same lock; use one region's table"
        return Finding("key", Verdict.FAILURE, text)
    return Finding("key", Verdict.OK, f"({PARTITION_KEY}, {SORT_KEY})")


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


def _permission(target: Target, dynamodb: Any, probe: Probe, table_arn: str | None) -> Finding:  # noqa: ANN401 - a client of boto3's
    try:
        allowed = is_allowed(target, dynamodb, probe, table_arn)
    except (BotoCoreError, ClientError, LookupError) as error:
        return Finding(probe.action, Verdict.UNKNOWN, str(error))
    if allowed:
        return Finding(probe.action, Verdict.OK, "allowed")
    verdict = Verdict.FAILURE if probe.is_needed else Verdict.WARNING
    return Finding(probe.action, verdict, f"denied: {probe.without}")


def _second(names: list[str]) -> Finding:
    if not names:
        return Finding("second table", Verdict.OK, "none has a name like this one's")
    text = f"{', '.join(names)}: another table of the same service? Locks of two tables do not "
    return Finding("second table", Verdict.WARNING, f"{text}exclude each other")
