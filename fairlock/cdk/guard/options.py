"""The numbers and choices of a guard, checked together, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration

from fairlock.cdk.guard.arguments import (
    check_flag,
    checked_keep_alive_seconds,
    checked_lease_seconds,
    checked_limit,
    checked_max_wait_seconds,
)
from fairlock.cdk.guard.service_calls import AcquireOptions
from fairlock.cdk.guard.waiting import DOES_NOT_WAIT, Waiting, checked_waiting
from fairlock.wire.rules import DEFAULT_LEASE_SECONDS, DEFAULT_MAX_WAIT_SECONDS

_DEFAULT_LEASE: Final = Duration.seconds(DEFAULT_LEASE_SECONDS)
_DEFAULT_MAX_WAIT: Final = Duration.seconds(DEFAULT_MAX_WAIT_SECONDS)
_DEFAULT_EXPRESS_MAX_WAIT: Final = Duration.minutes(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardOptions:
    """What a guard asks for, how it waits, and how often it sends heartbeats, None for never."""

    acquire: AcquireOptions
    waiting: Waiting
    interval_seconds: int | None


def checked_options(
    *,
    limit: int | str,
    lease: Duration | None,
    max_wait: Duration | None,
    waiting: Waiting | None,
    keep_alive: Duration | None,
    express: bool,
) -> GuardOptions:
    """The options, None replaced by the default.

    Raises:
        InvalidRequest: one of them breaks its rule.
    """
    check_flag("express", express)
    way_to_wait = checked_waiting(waiting, express=express)
    if max_wait is None:
        max_wait = _DEFAULT_EXPRESS_MAX_WAIT if express else _DEFAULT_MAX_WAIT
    acquire = AcquireOptions(
        lease_seconds=checked_lease_seconds(_DEFAULT_LEASE if lease is None else lease),
        limit=checked_limit(limit),
        max_wait_seconds=checked_max_wait_seconds(
            max_wait,
            shortest_seconds=way_to_wait.shortest_seconds,
            longest=way_to_wait.longest,
            express=express,
        ),
    )
    if acquire.max_wait_seconds == 0:
        way_to_wait = DOES_NOT_WAIT
    interval_seconds = checked_keep_alive_seconds(
        keep_alive, lease_seconds=acquire.lease_seconds, express=express
    )
    return GuardOptions(acquire=acquire, waiting=way_to_wait, interval_seconds=interval_seconds)
