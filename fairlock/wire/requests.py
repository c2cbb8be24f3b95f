"""From JSON of an unknown caller to a request, or `InvalidRequest`; the rules are in `rules.py`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fairlock.errors import InvalidRequest
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.model import (
    BY_TIME,
    DEFAULT_LEASE_MS,
    AcquireRequest,
    ForceReleaseRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    ReleaseRequest,
)
from fairlock.protocol.pace import MICROSECONDS, PaceRequest, interval_us
from fairlock.protocol.schema import WAITER_GRACE_MS
from fairlock.text import compact_json
from fairlock.wire import rules
from fairlock.wire.rules import callback_token, is_durable

_RULES: Final = {
    "lock_name": rules.LOCK_NAME,
    "owner_id": rules.OWNER_ID,
    "owner_name": rules.OWNER_NAME,
    "lease_seconds": rules.LEASE_SECONDS,
    "limit": rules.LIMIT,
    "shared": rules.FLAG,
    "only_newest": rules.ONLY_NEWEST,
    "data": rules.DATA,
    "execution_arn": rules.EXECUTION_ARN,
    "redrive_count": rules.RUN_OF_EXECUTION,
    "entered_at_ms": rules.EPOCH_MS,
    "waiting_since_ms": rules.EPOCH_MS,
    "ticket": rules.TICKET,
    "queue": rules.FLAG,
    "task_token": rules.TASK_TOKEN,
    "fallback_seconds": rules.FALLBACK_SECONDS,
    "keep_alive": rules.FLAG,
    "prefix": rules.PREFIX,
    "after": rules.LOCK_NAME,
    "free": rules.FLAG,
    "fencing_token": rules.FENCING_TOKEN,
    "requested_by": rules.REQUESTED_BY,
    "reason": rules.REASON,
    "pace_name": rules.LOCK_NAME,
    "rate": rules.PACE_RATE,
    "burst": rules.BURST,
    "max_wait_seconds": rules.PACE_WAIT_SECONDS,
    "reservation_id": rules.RESERVATION_ID,
}


_Schema = tuple[Sequence[str], Mapping[str, rules.Rule]]
"""What a request must have, and the rules of all its fields, in the order of a message."""


def _schema(required: str, optional: str, **other_rules: rules.Rule) -> _Schema:
    rule_of = {**_RULES, **other_rules}
    return required.split(), {name: rule_of[name] for name in f"{required} {optional}".split()}


_ACQUIRE: Final = _schema(
    "lock_name",
    "owner_id owner_name lease_seconds limit data execution_arn redrive_count entered_at_ms queue "
    "ticket waiting_since_ms task_token fallback_seconds shared only_newest",
)
_HEARTBEAT: Final = _schema("lock_name owner_id", "lease_seconds data")
_KEEP_ALIVE: Final = _schema(
    "lock_name owner_id task_token execution_arn",
    "owner_name lease_seconds limit redrive_count shared only_newest",
    execution_arn=rules.STANDARD_EXECUTION_ARN,
)
_PACE: Final = _schema("pace_name rate", "burst max_wait_seconds reservation_id")
_DESCRIBE: Final = _schema("lock_name", "")
_LIST: Final = _schema("", "prefix after free")
_FORCE_RELEASE: Final = _schema("lock_name fencing_token requested_by reason", "")
_SET_LIMIT: Final = _schema("lock_name limit requested_by reason", "", limit=rules.CEILING)
_RELEASE: Final = _schema("lock_name owner_id", "queue ticket execution_arn keep_alive")


def parse_acquire(event: object) -> AcquireRequest:
    """An acquire request. Without an owner_id one is made, and the call is then not repeatable.

    `entered_at_ms` is when this call was made. It says neither where the caller is in the queue
    (`ticket`) nor since when it waits (`waiting_since_ms`).
    """
    fields = _checked(_ACQUIRE, event)
    _require_execution(fields, "task_token")
    if "task_token" in fields and "entered_at_ms" in fields:
        # Its state would sleep on, and a Retry repeats the call with the same time for ever.
        rule = "must not be sent with task_token: the claim of the execution tells a late call"
        raise _fault("entered_at_ms", rule, fields["entered_at_ms"])
    fallback_ms = _milliseconds(fields.get("fallback_seconds"))
    return replace(
        _acquisition(fields),
        data=_json_or_none(fields),
        ticket=fields.get("ticket"),
        called_at_ms=fields.get("entered_at_ms"),
        waits=fields.get("queue", False) or "task_token" in fields,
        task_token=_token(fields),
        waiter_timeout_ms=None if fallback_ms is None else fallback_ms + WAITER_GRACE_MS,
    )


def parse_heartbeat(event: object) -> HeartbeatRequest | KeepAliveRequest:
    """A heartbeat request; with a task token, one of a workflow that keeps its lock alive."""
    if isinstance(event, dict) and "task_token" in event:
        fields = _checked(_KEEP_ALIVE, event)
        return KeepAliveRequest(
            acquisition=_acquisition(fields),
            execution_arn=fields["execution_arn"],
            task_token=fields["task_token"],
        )
    fields = _checked(_HEARTBEAT, event)
    return HeartbeatRequest(
        lock_name=fields["lock_name"],
        owner_id=fields["owner_id"],
        lease_ms=_milliseconds(fields.get("lease_seconds")),
        data=_json_or_none(fields),
    )


def parse_release(event: object) -> ReleaseRequest:
    """A release request; with `queue: true` or a ticket, of an owner that may be in the queue."""
    fields = _checked(_RELEASE, event)
    _require_execution(fields, "keep_alive")
    return ReleaseRequest(
        lock_name=fields["lock_name"],
        owner_id=fields["owner_id"],
        waits=fields.get("queue", False) or fields.get("ticket") is not None,
        ticket=fields.get("ticket"),
        execution_arn=fields.get("execution_arn"),
        keep_alive=fields.get("keep_alive", False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """List locks."""

    prefix: str = ""
    after: str | None = None
    free: bool = False


def parse_inspect(event: object) -> str | ListRequest:
    """The name of the lock to describe, or a list request."""
    if isinstance(event, dict) and "lock_name" in event:
        name: str = _checked(_DESCRIBE, event)["lock_name"]
        return name
    return ListRequest(**_checked(_LIST, event))


def parse_force_release(event: object) -> ForceReleaseRequest:
    """A request to release by force."""
    return ForceReleaseRequest(**_checked(_FORCE_RELEASE, event))


def parse_set_limit(event: object) -> SetCeilingRequest:
    """A request to limit a lock, to pause it (0), or to lift both (null)."""
    return SetCeilingRequest(**_checked(_SET_LIMIT, event))


def parse_pace(event: object) -> PaceRequest:
    """A request for a slot. Without a reservation_id one is made; the call is not repeatable then.

    Without `max_wait_seconds` it takes the next slot only if that begins at once.
    """
    fields = _checked(_PACE, event)
    count, period_seconds = fields["rate"]
    return PaceRequest(
        name=fields["pace_name"],
        reservation_id=fields.get("reservation_id") or str(uuid.uuid4()),
        interval_us=interval_us(int(count), period_seconds),
        burst=fields.get("burst", 1),
        max_wait_us=round(fields.get("max_wait_seconds", 0) * MICROSECONDS),
    )


MOST_HOLDERS_BYTES: Final = 300 * 1024
"""Of all holders of one lock; three quarters of DynamoDB's limit."""
HOLDER_BYTES: Final = 350
"""Of a holder without data, owner_name and execution_arn: its owner_id twice, and numbers."""


def require_room_for_all(*, limit: int, owner_name: str, execution_arn: str | None) -> None:
    """Refuses a holder of whom `limit` would make too large an item, whatever its data."""
    texts = {owner_name, execution_arn or ""}  # A guard's owner_name is its ARN, stored once.
    text_bytes = sum(len(text.encode()) for text in texts)
    highest = MOST_HOLDERS_BYTES // (HOLDER_BYTES + rules.LARGEST_DATA_BYTES + text_bytes)
    if limit > highest:
        rule = (
            f"must be at most {highest} with an owner_name and an execution_arn of {text_bytes} "
            "bytes together: all holders of a lock are in one item"
        )
        raise InvalidRequest(field="limit", rule=rule, value=limit)


def _acquisition(fields: Mapping[str, Any]) -> AcquireRequest:
    """What an acquire request and the heartbeat of a workflow have in common."""
    shared, owner_name = fields.get("shared", False), fields.get("owner_name", "")
    limit = rules.limit_of(fields.get("limit", 1), shared=shared)
    rules.require_one_way(shared=shared, only_newest=fields.get("only_newest"))
    execution_arn = fields.get("execution_arn")
    require_room_for_all(limit=limit, owner_name=owner_name, execution_arn=execution_arn)
    return AcquireRequest(
        lock_name=fields["lock_name"],
        owner_id=fields.get("owner_id") or str(uuid.uuid4()),
        owner_name=owner_name,
        lease_ms=_milliseconds(fields.get("lease_seconds")) or DEFAULT_LEASE_MS,
        limit=limit,
        execution_arn=execution_arn,
        redrives=_redrives(fields),
        waiting_since_ms=fields.get("waiting_since_ms"),
        shared=shared,
        only_newest=version_of(fields.get("only_newest")),
    )


def version_of(only_newest: object) -> int | None:
    """The version that `only_newest` names: True is one by time, None or False is none."""
    if isinstance(only_newest, bool) or only_newest is None:
        return BY_TIME if only_newest else None
    return int(only_newest)  # type: ignore[call-overload,no-any-return]  # a whole number by its rule


def _redrives(fields: Mapping[str, Any]) -> int | None:
    """Which run of its execution asks. A durable execution has one only."""
    execution_arn = fields.get("execution_arn")
    if execution_arn is not None and is_durable(execution_arn):
        return 0
    return fields.get("redrive_count")


def _token(fields: Mapping[str, Any]) -> str | None:
    """What wakes the caller: a task token, or of a durable execution the token of its callback."""
    token = fields.get("task_token")
    if token is None or not is_durable(fields["execution_arn"]):
        return token
    rules.require("task_token", rules.CALLBACK_ID, token)
    return callback_token(token)


def _require_execution(fields: Mapping[str, Any], other: str) -> None:
    """An execution must be named beside another field: without it no one could tell its end."""
    if fields.get(other) and "execution_arn" not in fields:
        raise InvalidRequest(field="execution_arn", rule=f"is required with {other}", missing=True)


def _checked(schema: _Schema, event: object) -> Mapping[str, Any]:
    """The event's fields, if none breaks its rule; `1.0` counts as 1."""
    if not isinstance(event, dict):
        raise _fault("request", "must be a JSON object", event)
    required, known = schema
    for name, value in event.items():
        if name in known and not known[name].allows(value):
            raise _fault(name, known[name].broken_by(value), value)
    for name, value in event.items():
        if name not in known:
            fields = "lock_name alone, or " * (schema is _LIST) + ", ".join(known)
            rule = f"is not a field of this request; its fields are {fields}"
            raise _fault(str(name), rule, value)
    for name in required:
        if name not in event:
            raise InvalidRequest(field=name, rule="is required", missing=True)
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in event.items()
    }


def _fault(field: str, rule: str, value: object) -> InvalidRequest:
    """A broken rule. Any text may be an owner_id in the wrong field."""
    return InvalidRequest(field=field, rule=rule, value=value, show_text=False)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _json_or_none(fields: Mapping[str, Any]) -> str | None:
    return compact_json(fields["data"]) if "data" in fields else None
