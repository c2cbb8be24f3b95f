"""The clock of this machine against DynamoDB's, by the Date of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from leasehold.clock import Clock
from leasehold.protocol.model import DEFAULT_CLOCK_TOLERANCE_MS
from leasehold.protocol.schema import lock_key

TOLERANCE_SECONDS: Final = DEFAULT_CLOCK_TOLERANCE_MS / 1000
_RESOLUTION_SECONDS: Final = 1.0
"""Of a Date: it has no fractions."""


def clock_offset(
    answer: Mapping[str, Any], *, began_ms: int, ended_ms: int
) -> tuple[float, float] | None:
    """By how many seconds DynamoDB's clock is ahead of ours, at least and at most.

    The Date was made at some moment between the request and its answer, and is cut to the second.

    Args:
        answer: as boto3 gives it.
        began_ms: our clock when the request was sent.
        ended_ms: our clock when the answer had come.

    Returns:
        None if the answer has no Date.
    """
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        told = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None
    return told - ended_ms / 1000, told + _RESOLUTION_SECONDS - began_ms / 1000


def what_is_wrong(offset: tuple[float, float]) -> str:
    """Tells by how much the clock of this machine is wrong at least; empty if it may be right."""
    least, most = offset
    nearest = 0.0 if least <= 0 <= most else min(abs(least), abs(most))
    if nearest <= TOLERANCE_SECONDS:
        return ""
    way = "behind" if least > 0 else "ahead of"
    return (
        f"the clock of this machine is at least {nearest:.1f} s {way} DynamoDB's, and "
        f"{TOLERANCE_SECONDS:g} s are tolerated: let a time service set it"
    )


def check_clock(dynamodb: Any, table_name: str, lock_name: str, clock: Clock) -> str:  # noqa: ANN401 - a client of boto3's
    """Tells what is wrong with the clock of this machine, by one read; empty if nothing is known.

    The departing holder writes the end of the next lease, and judges which waiters are dead.
    """
    began_ms = clock.wall_ms()
    answer = dynamodb.get_item(TableName=table_name, Key=lock_key(lock_name))
    offset = clock_offset(answer, began_ms=began_ms, ended_ms=clock.wall_ms())
    return "" if offset is None else what_is_wrong(offset)
