"""The clock of this machine against DynamoDB's, by the Date of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

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
