"""From JSON of an unknown caller to a request, or `InvalidRequest`; the rules are in `rules.py`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from voluptuous import MultipleInvalid, Optional, Required, RequiredFieldInvalid, Schema

from leasehold.errors import InvalidRequest
from leasehold.protocol.model import (
    DEFAULT_LEASE_MS,
    AcquireRequest,
    HeartbeatRequest,
    KeepAliveRequest,
    ReleaseRequest,
)
from leasehold.wire.rules import (
    DATA,
    ENTERED_AT_MS,
    EXECUTION_ARN,
    FLAG,
    LEASE_SECONDS,
    LIMIT,
    LOCK_NAME,
    OWNER_ID,
    OWNER_NAME,
    TASK_TOKEN,
    Rule,
    compact_json,
)

_NAMED_OWNER: Final[dict[Any, Rule]] = {
    Required("lock_name"): LOCK_NAME,
    Required("owner_id"): OWNER_ID,
}
_ACQUIRE: Final = Schema(
    {
        Required("lock_name"): LOCK_NAME,
        Optional("owner_id"): OWNER_ID,
        Optional("owner_name"): OWNER_NAME,
        Optional("lease_seconds"): LEASE_SECONDS,
        Optional("limit"): LIMIT,
        Optional("data"): DATA,
        Optional("execution_arn"): EXECUTION_ARN,
        Optional("entered_at_ms"): ENTERED_AT_MS,
        Optional("ticket"): ENTERED_AT_MS,
        Optional("wait"): FLAG,
        Optional("task_token"): TASK_TOKEN,
    }
)
_HEARTBEAT: Final = Schema(
    {**_NAMED_OWNER, Optional("lease_seconds"): LEASE_SECONDS, Optional("data"): DATA}
)
_KEEP_ALIVE: Final = Schema(
    {
        **_NAMED_OWNER,
        Required("task_token"): TASK_TOKEN,
        Required("execution_arn"): EXECUTION_ARN,
        Optional("owner_name"): OWNER_NAME,
        Optional("lease_seconds"): LEASE_SECONDS,
        Optional("limit"): LIMIT,
        Optional("entered_at_ms"): ENTERED_AT_MS,
    }
)
_RELEASE: Final = Schema(
    {
        **_NAMED_OWNER,
        Optional("entered_at_ms"): ENTERED_AT_MS,
        Optional("ticket"): ENTERED_AT_MS,
        Optional("execution_arn"): EXECUTION_ARN,
        Optional("keep_alive"): FLAG,
    }
)


def parse_acquire(event: object) -> AcquireRequest:
    """An acquire request. Without an owner_id one is made, and the call is then not repeatable."""
    fields = _checked(_ACQUIRE, event)
    return AcquireRequest(
        lock_name=fields["lock_name"],
        owner_id=fields.get("owner_id") or str(uuid.uuid4()),
        owner_name=fields.get("owner_name", ""),
        lease_ms=_milliseconds(fields.get("lease_seconds")) or DEFAULT_LEASE_MS,
        limit=int(fields.get("limit", 1)),
        data=_json_or_none(fields),
        execution_arn=fields.get("execution_arn"),
        entered_at_ms=_entered_at_ms(fields),
        waits=fields.get("wait", False) or "task_token" in fields,
        task_token=fields.get("task_token"),
    )


def parse_heartbeat(event: object) -> HeartbeatRequest | KeepAliveRequest:
    """A heartbeat request; with a task token, one of a workflow that keeps its lock alive."""
    if isinstance(event, dict) and "task_token" in event:
        return _keep_alive(_checked(_KEEP_ALIVE, event))
    fields = _checked(_HEARTBEAT, event)
    return HeartbeatRequest(
        lock_name=fields["lock_name"],
        owner_id=fields["owner_id"],
        lease_ms=_milliseconds(fields.get("lease_seconds")),
        data=_json_or_none(fields),
    )


def parse_release(event: object) -> ReleaseRequest:
    """A release request."""
    fields = _checked(_RELEASE, event)
    if fields.get("keep_alive") and "execution_arn" not in fields:
        rule = "is required with keep_alive"
        raise InvalidRequest(field="execution_arn", rule=rule, missing=True)
    return ReleaseRequest(
        lock_name=fields["lock_name"],
        owner_id=fields["owner_id"],
        entered_at_ms=_entered_at_ms(fields),
        execution_arn=fields.get("execution_arn"),
        keep_alive=fields.get("keep_alive", False),
    )


def _keep_alive(fields: Mapping[str, Any]) -> KeepAliveRequest:
    acquisition = AcquireRequest(
        lock_name=fields["lock_name"],
        owner_id=fields["owner_id"],
        owner_name=fields.get("owner_name", ""),
        lease_ms=_milliseconds(fields.get("lease_seconds")) or DEFAULT_LEASE_MS,
        limit=int(fields.get("limit", 1)),
        execution_arn=fields["execution_arn"],
        entered_at_ms=_entered_at_ms(fields),
    )
    return KeepAliveRequest(
        acquisition=acquisition,
        execution_arn=fields["execution_arn"],
        task_token=fields["task_token"],
    )


def _checked(schema: Schema, event: object) -> Mapping[str, Any]:
    """The event's fields once all keep their rules.

    Raises:
        InvalidRequest: names one field at fault. A field that breaks its rule goes before an
            unknown one, and an unknown one (often a misspelled one) before a missing one.
    """
    if not isinstance(event, dict):
        raise InvalidRequest(field="request", rule="must be a JSON object", value=event)
    try:
        fields: dict[str, Any] = schema(event)
    except MultipleInvalid as error:
        known = [str(key) for key in schema.schema]
        raise min(_faults(event, known, error))[-1] from None
    return fields


def _faults(
    event: Mapping[str, Any], known: Sequence[str], error: MultipleInvalid
) -> Iterator[tuple[int, int, InvalidRequest]]:
    """Each fault with its rank; the position keeps faults of one rank in order."""
    for position, fault in enumerate(error.errors):
        name = str(fault.path[0])
        value = event.get(name)
        if isinstance(fault, RequiredFieldInvalid):
            rule = "is required"
            yield 2, position, InvalidRequest(field=name, rule=rule, missing=True)
        elif name not in known:
            rule = f"is not a field of this request; its fields are {', '.join(known)}"
            yield 1, position, InvalidRequest(field=name, rule=rule, value=value)
        else:
            yield 0, position, InvalidRequest(field=name, rule=fault.msg, value=value)


def _entered_at_ms(fields: Mapping[str, Any]) -> int | None:
    """The place in the queue: made by the caller, or the ticket that an earlier answer gave it."""
    place = fields.get("ticket", fields.get("entered_at_ms"))
    return None if place is None else int(place)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _json_or_none(fields: Mapping[str, Any]) -> str | None:
    return compact_json(fields["data"]) if "data" in fields else None
