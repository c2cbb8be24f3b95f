"""Checks the arguments of `hold`, before anything is asked or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fairlock.durable.acquisition import Options
from fairlock.durable.lock_functions import Json, LockFunctions, LockRequests
from fairlock.errors import InvalidRequest
from fairlock.protocol.schema import LONGEST_FALLBACK_SECONDS
from fairlock.wire import rules

MOST_FALLBACK_PERIODS: Final = 1_000
"""Two operations each, of the 3,000 that an execution may have."""
_WHOLE_SECONDS: Final = "must be a whole number of seconds, or a timedelta of whole seconds"
_LONGEST_WAIT_SECONDS: Final = 366 * 86_400

Span = int | timedelta
"""A time: whole seconds, or a timedelta of them. Durable timers know no shorter ones."""


def options_of(
    *,
    name: str,
    limit: int,
    lease: Span,
    max_wait: Span | None,
    data: Mapping[str, Any] | None,
    fallback: Span | None,
    service: LockRequests | None,
) -> Options:
    """What `hold` was asked for.

    Raises:
        InvalidRequest: names the argument and its rule.
        LockStoreMisconfigured: no service was named.
    """
    rules.require("name", rules.LOCK_NAME, name, show_text=True)
    rules.require("limit", rules.LIMIT, limit)
    lease_seconds = _seconds("lease", lease)
    rules.require("lease", rules.LEASE_SECONDS, lease_seconds)
    request: Json = {"lock_name": name, "limit": limit, "lease_seconds": lease_seconds}
    if data is not None:
        rules.require("data", rules.DATA, data)
        request["data"] = dict(data)
    wait_seconds = None if max_wait is None else _wait_seconds(max_wait)
    return Options(
        name=name,
        request=request,
        max_wait=wait_seconds,
        fallback=_fallback_seconds(fallback, wait_seconds or 0),
        service=service or LockFunctions.from_environment(),
    )


def _wait_seconds(max_wait: Span) -> int:
    seconds = _seconds("max_wait", max_wait)
    if not 1 <= seconds <= _LONGEST_WAIT_SECONDS:
        rule = "must be from 1 s to 366 days, the longest execution; skip=True does not wait"
        raise InvalidRequest(field="max_wait", rule=rule, value=seconds)
    return seconds


def _fallback_seconds(fallback: Span | None, wait_seconds: int) -> int:
    shortest = -(-wait_seconds // MOST_FALLBACK_PERIODS)
    if fallback is None:
        return max(rules.DEFAULT_FALLBACK_SECONDS, shortest)
    seconds = _seconds("fallback", fallback)
    least = max(rules.SHORTEST_FALLBACK_SECONDS, shortest)
    if not least <= seconds <= LONGEST_FALLBACK_SECONDS:
        rule = f"must be from {least} s to 12 h: the execution has room for 1,000 such periods"
        raise InvalidRequest(field="fallback", rule=rule, value=seconds)
    return seconds


def _seconds(field: str, value: object) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds % 1:
        # NaN and infinity leave a remainder that is not 0.
        raise InvalidRequest(field=field, rule=_WHOLE_SECONDS, value=value)
    return int(seconds)
