"""DynamoDB's limits: the fullest lock fits into one item, the largest request into its limits."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leasehold.errors import InvalidRequest
from leasehold.protocol.model import AcquireRequest, Grant, Holder, LockState
from leasehold.protocol.permits import take_over_permit
from leasehold.protocol.schema import lock_key
from leasehold.wire.requests import parse_acquire
from tests.support import START_MS, FakeClock, store_over
from tests.support.memory_table import MemoryTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LARGEST_ITEM_BYTES = 400 * 1024
LONGEST_EXPRESSION_BYTES = 4096
MOST_OPERATORS = 300
HOLDERS = 100
ARN = "arn:aws:states:us-east-1:123456789012:execution:"
LETTERS = ("r", "é", "€", "\N{MATHEMATICAL BOLD SMALL A}")
"""Of one to four bytes, each a word character."""


def utf8(text: str) -> int:
    return len(text.encode())


def value_bytes(value: Mapping[str, Any]) -> int:
    """Size of an attribute value, by the rules in the DynamoDB developer guide ("Item sizes")."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return utf8(content)
        case "N":
            return len(content.strip("-0.")) // 2 + 2
        case "BOOL":
            return 1
        case "M":
            return 3 + sum(1 + utf8(name) + value_bytes(part) for name, part in content.items())
    raise AssertionError(kind)


def item_bytes(item: Mapping[str, Any]) -> int:
    return sum(utf8(name) + value_bytes(value) for name, value in item.items())


def accepted(fields: Mapping[str, object]) -> AcquireRequest | None:
    try:
        return parse_acquire(fields)
    except InvalidRequest:
        return None


def fullest(number: int) -> AcquireRequest:
    """The largest acquisition that the input rules let through, made of the widest letters."""
    accounts = [f"arn:{letter * 90}:states:x:123456789012:execution:" for letter in LETTERS]
    candidates = [f"{account}x:y" for account in accounts]
    candidates += [f"{ARN}{letter * 80}:{letter * 80}" for letter in LETTERS]
    candidates += [f"{ARN}{'€' * n}:{'€' * n}" for n in range(40, 80)]
    fields = {
        "lock_name": "x" * 512,
        "owner_id": f"{number:~>128}",
        "owner_name": "é" * 512,
        "limit": HOLDERS,
        "lease_seconds": 43_200,
        "data": {"a": "x" * 2040},
    }
    requests = [accepted({**fields, "execution_arn": arn}) for arn in candidates]
    sizes = [(utf8(request.execution_arn or ""), request) for request in requests if request]
    return max(sizes, key=lambda size: size[0])[1]


def full_item(dynamodb: DynamoDBClient, clock: FakeClock) -> dict[str, Any]:
    """The item of a lock that a hundred of the fullest holders hold, made from that of one."""
    owner = fullest(0)
    assert isinstance(store_over(dynamodb, clock).acquire(owner), Grant)
    item = dynamodb.get_item(TableName="locks", Key=lock_key(owner.lock_name))["Item"]
    full: dict[str, Any] = dict(item)
    full["holder:" + owner.owner_id]["M"]["undelivered"] = {"BOOL": True}
    for part in ("holder:", "token:"):
        value = full.pop(part + owner.owner_id)
        full |= {f"{part}{number:~>128}": value for number in range(HOLDERS)}
    return full | {
        "held": {"N": str(HOLDERS)},
        "last_released": {"S": "x" * 128},
        "contended": {"BOOL": True},
        "wait_seq": {"N": "9" * 15},
    }


def test_a_hundred_of_the_fullest_holders_fit_into_one_item(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    item = full_item(dynamodb, clock)
    assert sum(name.startswith("holder:") for name in item) == HOLDERS
    assert LARGEST_ITEM_BYTES * 0.9 < item_bytes(item) <= LARGEST_ITEM_BYTES
    dynamodb.put_item(TableName="locks", Item=item)


def guards_item(clock: FakeClock, *, guards: int, label: str = "") -> int:
    """Bytes of a lock that so many guards hold, whose owner_name is their ARN unless labelled."""
    client = MemoryTable()
    for number in range(guards):
        arn = f"{ARN}Billing-MachineD1A2B3C4-x1y2z3:{uuid.UUID(int=number)}"
        request = AcquireRequest(
            lock_name="customer/1234",
            owner_id=str(uuid.UUID(int=number)),
            owner_name=label or arn,
            execution_arn=arn,
            limit=HOLDERS,
        )
        assert isinstance(store_over(client, clock).acquire(request), Grant)
    return item_bytes(client.get_item(Key=lock_key("customer/1234"))["Item"])


def test_a_mutex_stays_below_one_kib_and_a_hundred_guards_make_28(clock: FakeClock) -> None:
    assert guards_item(clock, guards=1) < 1024
    assert round(guards_item(clock, guards=HOLDERS) / 1024) == 28
    as_long_as_an_arn = "n" * len(f"{ARN}Billing-MachineD1A2B3C4-x1y2z3:{uuid.UUID(int=0)}")
    assert round(guards_item(clock, guards=HOLDERS, label=as_long_as_an_arn) / 1024) > 35


def operators(expression: str) -> int:
    return len(re.findall(r"<>|<=|>=|[=<>+]|\b(?:AND|OR|NOT|[a-z_]+\()", expression))


def test_taking_over_a_hundred_holders_keeps_the_limits_of_expressions() -> None:
    """The limit was lowered from 100 to 1 while all leases ran out."""
    evictable = [
        Holder(
            owner_id=f"{number:~>128}",
            owner_name="",
            acquired_at_ms=START_MS,
            expires_at_ms=START_MS,
            lease_ms=1_000,
            limit=HOLDERS,
            revision=number,
            fencing_token=number,
        )
        for number in range(HOLDERS)
    ]
    seen = LockState(held=HOLDERS, limit=HOLDERS, holders=tuple(evictable))
    request = replace(fullest(0), owner_id="~" * 128, limit=1)
    update = take_over_permit(request, evictable, now_ms=START_MS, seen=seen)
    assert update.condition.count(".#revision = :seen") == HOLDERS
    for expression in (update.condition, update.change):
        assert utf8(expression) <= LONGEST_EXPRESSION_BYTES
        assert operators(expression) <= MOST_OPERATORS
    assert operators(update.condition) > HOLDERS
    assert update.values[":difference"] == {"N": str(1 - HOLDERS)}
