"""The rules of `LockClient`'s arguments, and the request that they become."""

from __future__ import annotations

import math
import os
import re
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voluptuous import Invalid

from leasehold.errors import InvalidRequest
from leasehold.protocol.model import AcquireRequest
from leasehold.wire import rules

LONGEST_WAIT_SECONDS: Final = 7 * 24 * 3600
LEAST_DEFAULT_WAIT_SECONDS: Final = 120.0
_DEFAULT_WAIT_IN_LEASES: Final = 2
"""A process that begins to watch a crashed holder needs a little more than one lease."""
_LEAST_PERIOD_SECONDS: Final = 0.05
_MOST_WORKERS: Final = 1000
_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,1024}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a held lock is renewed, and when it is in danger.

    Attributes:
        heartbeat_every: seconds between renewals; None for a third of the lease.
        safe_period: seconds before the lease's end; None for a third of the lease.
    """

    heartbeat_every: float | None
    safe_period: float | None

    def period(self, lease_seconds: float) -> float:
        """Seconds between renewals of such a lease."""
        return lease_seconds / 3 if self.heartbeat_every is None else self.heartbeat_every

    def safe(self, lease_seconds: float) -> float:
        """Seconds before the end of such a lease at which it is in danger."""
        return lease_seconds / 3 if self.safe_period is None else self.safe_period

    def require_room(self, lease_seconds: float) -> None:
        """Refuses periods with which a lock would be in danger, or lost, by plan.

        Raises:
            InvalidRequest: as it says.
        """
        period, safe = self.period(lease_seconds), self.safe(lease_seconds)
        if period != math.inf and period + safe >= lease_seconds:
            rule = (
                "must be longer than heartbeat_every and safe_period together "
                f"({period:g} s + {safe:g} s)"
            )
            raise InvalidRequest(field="lease", rule=rule, value=lease_seconds)
        if safe >= lease_seconds:
            rule = f"must be longer than safe_period ({safe:g} s)"
            raise InvalidRequest(field="lease", rule=rule, value=lease_seconds)


def require(field: str, rule: Callable[[Any], Any], value: object) -> None:
    """Raises `InvalidRequest` if the value breaks one of the input rules."""
    try:
        rule(value)
    except Invalid as broken:
        raise InvalidRequest(field=field, rule=str(broken), value=value) from None


def require_seconds(field: str, value: object, *, least: float, most: float) -> None:
    """Raises `InvalidRequest` unless the value is a number within bounds."""
    in_bounds = (
        isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
    )
    if not in_bounds:
        rule = f"must be a number of seconds from {least:g} to {most:g}"
        raise InvalidRequest(field=field, rule=rule, value=value)


def require_wait(value: object) -> None:
    """Raises `InvalidRequest` unless the value is a wait that the queue can keep."""
    require_seconds("wait", value, least=0, most=LONGEST_WAIT_SECONDS)


def default_wait(wait: float | None, lease: float) -> float:
    """Seconds that a client waits whose setting is this, if a call does not say.

    Raises:
        InvalidRequest: the lease breaks its rule.
    """
    require("lease", rules.LEASE_SECONDS, lease)
    if wait is not None:
        return wait
    return max(LEAST_DEFAULT_WAIT_SECONDS, _DEFAULT_WAIT_IN_LEASES * lease)


def require_table_name(value: object) -> None:
    """Raises `InvalidRequest` unless the value may name a table."""
    if not isinstance(value, str) or not _TABLE_NAME.fullmatch(value):
        rule = "must be the name or ARN of a DynamoDB table"
        raise InvalidRequest(field="table_name", rule=rule, value=value)


def require_callable(field: str, value: object) -> None:
    """Raises `InvalidRequest` unless the value is a function, or None."""
    if value is not None and not callable(value):
        raise InvalidRequest(field=field, rule="must be a function", value=value)


def require_settings(
    *,
    owner_name: str,
    lease: float,
    wait: float | None,
    timing: Timing,
    takeover: str,
    longest_poll: float,
    max_workers: int,
) -> None:
    """Raises `InvalidRequest` if a setting of a client breaks its rule."""
    require("owner_name", rules.OWNER_NAME, owner_name)
    require("lease", rules.LEASE_SECONDS, lease)
    if wait is not None:
        require_wait(wait)
    for field in ("heartbeat_every", "safe_period"):
        seconds = getattr(timing, field)
        if seconds is not None:
            require_seconds(field, seconds, least=_LEAST_PERIOD_SECONDS, most=math.inf)
    timing.require_room(lease)
    if takeover not in {"observed", "stored_expiry"}:
        rule = 'must be "observed" or "stored_expiry"'
        raise InvalidRequest(field="takeover", rule=rule, value=takeover)
    require_seconds("longest_poll", longest_poll, least=_LEAST_PERIOD_SECONDS, most=3600)
    if not isinstance(max_workers, int) or not 1 <= max_workers <= _MOST_WORKERS:
        rule = f"must be a whole number from 1 to {_MOST_WORKERS}"
        raise InvalidRequest(field="max_workers", rule=rule, value=max_workers)


def acquire_request(
    *,
    name: str,
    lease: float,
    limit: int,
    data: Mapping[str, Any] | None,
    owner_name: str,
    waits: bool,
) -> AcquireRequest:
    """A new acquisition, with an owner_id of its own.

    Raises:
        InvalidRequest: names the argument and its rule.
    """
    require("name", rules.LOCK_NAME, name)
    require("lease", rules.LEASE_SECONDS, lease)
    require("limit", rules.LIMIT, limit)
    require("owner_name", rules.OWNER_NAME, owner_name)
    return AcquireRequest(
        lock_name=name,
        owner_id=str(uuid.uuid4()),
        owner_name=owner_name,
        lease_ms=round(lease * 1000),
        limit=int(limit),
        data=as_text(data),
        waits=waits,
    )


def as_text(data: Mapping[str, Any] | None) -> str | None:
    """The data as it is stored; `InvalidRequest` if it is no small JSON object."""
    if data is None:
        return None
    plain = dict(data) if isinstance(data, Mapping) else data
    require("data", rules.DATA, plain)
    return rules.compact_json(plain)


def default_owner_name() -> str:
    """`host:process:program`, or the function's name in place of the program in Lambda."""
    program = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or Path(sys.argv[0] or "python").name
    name = f"{socket.gethostname()}:{os.getpid()}:{program}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:256]
