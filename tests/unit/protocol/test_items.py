"""What an item of the table holds: holders, how many fit, and what a damaged one is read as."""

from __future__ import annotations

import re
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from fairlock.errors import InvalidRequest, LockItemMalformed
from fairlock.protocol import claims, items, schema
from fairlock.protocol.grants import take_over_permit
from fairlock.protocol.items import read_state
from fairlock.protocol.model import AcquireRequest, Grant, Holder, LockState
from fairlock.protocol.schema import (
    HOLDER_REVISION,
    HOLDER_UNDELIVERED,
    holder_attribute,
    lengthen,
    shorten,
    token_attribute,
)
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import START_MS, ManualClock
from fairlock.wire.requests import MOST_HOLDERS_BYTES, parse_acquire
from tests.support import TABLE, acquire, owner, store_over
from tests.support.memory_tables import guard_request, item_bytes
from tests.support.store_bench import Bench

# Holders' records: short in the table, and the same when they are read.


HERE = "arn:aws:states:us-east-1:123456789012:execution:"
ELSEWHERE = "arn:aws:states:eu-west-1:123456789012:execution:"
SOME_UUID = "7d3f2c1e-9a4b-4c5d-8e6f-0123456789ab"


def arns(bench: Bench) -> list[str | None]:
    return [holder.execution_arn for holder in bench.state.holders]


@pytest.mark.parametrize("number", [0, 1, 2**128 - 1, uuid.UUID(SOME_UUID).int])
def test_a_uuid_takes_20_characters_and_is_read_back(number: int) -> None:
    text = str(uuid.UUID(int=number))
    short = shorten(text)
    assert short is not None
    assert (len(short.encode()), lengthen(short)) == (20, text)


@pytest.mark.parametrize(
    "text", [SOME_UUID.upper(), SOME_UUID.replace("-", ""), f"{{{SOME_UUID}}}", "x" * 36, ""]
)
def test_what_is_written_otherwise_than_a_uuid_usually_is_stays_as_it_is(text: str) -> None:
    assert shorten(text) is None


@pytest.mark.parametrize(
    "execution",
    [
        f"{HERE}Billing:{SOME_UUID}",
        f"{HERE}Billing:{SOME_UUID}_{SOME_UUID}",
        f"{HERE}Billing:run-1",
        f"{HERE}Billing:{SOME_UUID.upper()}",
        "arn:aws-cn:states:cn-north-1:123456789012:execution:Rechnung-\u00e4:run",
        "no ARN at all",
    ],
)
@pytest.mark.parametrize("owner_name", ["ci run 7", "", None])
@pytest.mark.parametrize("owner_id", [SOME_UUID, owner("anna"), SOME_UUID.upper()])
def test_a_holder_is_read_as_it_was_written(
    bench: Bench, execution: str, owner_name: str | None, owner_id: str
) -> None:
    name = execution if owner_name is None else owner_name
    fields = {"owner_id": owner_id, "owner_name": name, "execution_arn": execution}
    bench.grant("anna", limit=3, data="{}", **fields)
    (holder,) = bench.state.holders
    found = (holder.owner_id, holder.execution_arn, holder.limit, holder.data, holder.lease_ms)
    assert found == (owner_id, execution, 3, "{}", 60_000)
    assert holder.owner_name == (name or execution)


def test_executions_of_one_account_and_region_cost_one_request_each(bench: Bench) -> None:
    client, store = bench.counting()
    for name in ("a", "b"):
        store.acquire(acquire(name, limit=3, execution_arn=f"{HERE}Billing:{name}"))
    assert client.calls == ["update_item"] * 4, "two of them write claims"
    assert arns(bench) == [f"{HERE}Billing:a", f"{HERE}Billing:b"]


def test_an_execution_from_elsewhere_is_stored_in_full_by_a_second_write(bench: Bench) -> None:
    for prefix, name in ((HERE, "a"), (ELSEWHERE, "b"), (HERE, "c")):
        arn = f"{prefix}Billing:{name}"
        bench.grant(name, limit=3, execution_arn=arn)
    everyone = [f"{HERE}Billing:a", f"{ELSEWHERE}Billing:b", f"{HERE}Billing:c"]
    assert arns(bench) == everyone
    bench.wait("d", limit=3, execution_arn=f"{ELSEWHERE}Billing:d")
    bench.release("a")
    assert arns(bench) == [*everyone[1:], f"{ELSEWHERE}Billing:d"]


def test_a_record_with_a_broken_short_id_is_a_malformed_item() -> None:
    request = AcquireRequest(
        lock_name="a", owner_id=SOME_UUID, execution_arn=f"{HERE}x:{SOME_UUID}"
    )
    come_in = items.come_in(request.as_holder(fencing_token=1, now_ms=1), ":token", HERE)
    record = come_in.values[":holder"]
    record["M"][schema.HOLDER_EXECUTION] = {"S": "x~broken"}  # type: ignore[index]
    item: dict[str, Any] = {
        schema.holder_attribute(SOME_UUID): record,
        schema.token_attribute(SOME_UUID): {"N": "1"},
        schema.EXECUTIONS: {"S": HERE},
    }
    with pytest.raises(LockItemMalformed):
        items.read_holder(item, SOME_UUID)


# DynamoDB's limits: the fullest lock fits into one item, the largest request into its limits.


LARGEST_ITEM_BYTES = 400 * 1024
LONGEST_EXPRESSION_BYTES = 4096
MOST_OPERATORS = 300
HOLDERS = 100
ARN = "arn:aws:states:us-east-1:123456789012:execution:"
LETTERS = ("r", "é", "€", "\N{MATHEMATICAL BOLD SMALL A}")
"""Of one to four bytes, each a word character."""


def utf8(text: str) -> int:
    return len(text.encode())


def accepted(fields: Mapping[str, object]) -> AcquireRequest | None:
    try:
        return parse_acquire(fields)
    except InvalidRequest:
        return None


def fields(owner_name: str, *, limit: int) -> dict[str, object]:
    """A request of the largest acquisition, as far as its owner_name and limit allow."""
    return {
        "lock_name": "x" * 512,
        "owner_id": "~" * 128,
        "owner_name": owner_name,
        "limit": limit,
        "lease_seconds": 43_199.999,
        "data": {"a": "x" * 2040},
        "execution_arn": LONGEST_ARN,
    }


def longest_arn() -> str:
    """The longest that the rules let through, made of the widest letters."""
    accounts = [f"arn:{letter * 90}:states:x:123456789012:execution:" for letter in LETTERS]
    candidates = [f"{account}x:y" for account in accounts]
    candidates += [f"{ARN}{letter * 80}:{letter * 80}" for letter in LETTERS]
    candidates += [f"{ARN}{'€' * n}:{'€' * n}" for n in range(40, 80)]
    known = {"lock_name": "x", "owner_id": "~" * 128}
    return max((arn for arn in candidates if accepted({**known, "execution_arn": arn})), key=utf8)


LONGEST_ARN = longest_arn()


def fullest(owner_name: str, *, limit: int) -> AcquireRequest:
    return parse_acquire(fields(owner_name, limit=limit))


def fullest_item(request: AcquireRequest) -> dict[str, Any]:
    """The item of a lock that as many such holders hold as their limit allows."""
    table = MemoryTable()
    assert isinstance(store_over(table, ManualClock()).acquire(replace(request, limit=1)), Grant)
    full: dict[str, Any] = dict(table.state(request.lock_name))
    full[holder_attribute(request.owner_id)]["M"][HOLDER_UNDELIVERED] = {"BOOL": True}
    full[holder_attribute(request.owner_id)]["M"][HOLDER_REVISION] = {"N": "9" * 15}
    for attribute in (holder_attribute, token_attribute):
        value = full.pop(attribute(request.owner_id))
        full |= {attribute(f"{number:~>128}"): value for number in range(request.limit)}
    return full | {
        "held": {"N": str(request.limit)},
        "last_released": {"S": "x" * 128},
        "contended": {"BOOL": True},
        "wait_seq": {"N": "9" * 15},
    }


def highest_limit(owner_name: str) -> int:
    """The highest limit that the rules let the fullest holder with this owner_name name."""
    limits = [limit for limit in range(1, HOLDERS + 1) if accepted(fields(owner_name, limit=limit))]
    return max(limits)


@pytest.mark.parametrize(("letters", "limit"), [(512, 78), (100, 98), (0, 100)])
def test_as_many_of_the_fullest_holders_as_may_hold_make_three_quarters_of_an_item(
    letters: int, limit: int
) -> None:
    """Letters of two bytes, an ARN of 511 bytes, 2 KiB of data, an owner_id of 128."""
    owner_name = "é" * letters
    assert highest_limit(owner_name) == limit
    item = fullest_item(fullest(owner_name, limit=limit))
    assert sum(name.startswith("holder:") for name in item) == limit
    others_bytes = 1024  # The key, the last owner that released, the counters.
    assert item_bytes(item) <= MOST_HOLDERS_BYTES + others_bytes < LARGEST_ITEM_BYTES * 0.76


def test_the_refusal_names_the_field_and_the_highest_limit() -> None:
    with pytest.raises(InvalidRequest, match="must be at most 78 with") as refused:
        parse_acquire(fields("é" * 512, limit=79))
    assert refused.value.field == "limit"


def test_every_limit_that_a_guard_may_have_fits() -> None:
    """A guard's owner_name is its ARN, so that nothing need be refused when it is synthesized."""
    longest = fullest("", limit=1).execution_arn
    assert longest is not None
    assert utf8(longest) > 500
    assert accepted({**fields(longest[:512], limit=HOLDERS), "owner_name": longest})


@pytest.mark.parametrize(("guards", "size"), [(1, 285), (5, 821), (20, 2_831), (100, 13_549)])
def test_each_guard_that_holds_takes_134_bytes_of_the_item(
    bench: Bench, guards: int, size: int
) -> None:
    """They were 285 when ARNs, owner ids and the names of attributes were stored in full."""
    for number in range(guards):
        bench.store().acquire(guard_request(number, guards))
    item = bench.client.state("customer/1234")
    assert item_bytes(item) == size
    holders = read_state(item).holders
    assert {holder.owner_name for holder in holders} == {h.execution_arn for h in holders}
    assert str(holders[0].execution_arn).startswith(f"{ARN}Billing-MachineD1A2B3C4-x1y2z3:0000")


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
    request = fullest("", limit=1)
    update = take_over_permit(request, evictable, now_ms=START_MS, seen=seen)
    assert update.condition.count(".#h_revision = :seen") == HOLDERS
    for expression in (update.condition, update.change):
        assert utf8(expression) <= LONGEST_EXPRESSION_BYTES
        assert operators(expression) <= MOST_OPERATORS
    assert operators(update.condition) > HOLDERS
    assert update.values[":difference"] == {"N": str(1 - HOLDERS)}


# Items that Fairlock did not write: a typed error that shows no owner_id.


RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:run"
ANNA = owner("anna")


def written_items() -> dict[str, dict[str, Any]]:
    """A lock with a holder, its waiter, and the claim of a workflow, as the store writes them."""
    table = MemoryTable()
    store = store_over(table, ManualClock(), table=TABLE)
    store.acquire(acquire("anna", execution_arn=RUN))
    store.acquire(acquire("anna2", waits=True))
    kinds = {"STATE": "state", "WAITER": "waiter", "LOCK": "claim"}
    return {kinds[sk.partition("#")[0]]: item for (_, sk), item in table.items.items()}


READERS: dict[str, Callable[[Any], object]] = {
    "state": items.read_state,
    "waiter": lambda item: items.read_waiter("nightly", item),
    "claim": lambda item: claims.read_claim(RUN, item),
}


def damaged(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The item with each attribute of another type in turn, those of holders too."""
    wrong: list[dict[str, Any]] = [{"NULL": True}, {"S": "x"}, {"M": {}}, {"N": "x"}]
    for name, value in item.items():
        if name in {schema.PARTITION_KEY, schema.SORT_KEY}:
            continue
        yield from ({**item, name: each} for each in wrong)
        for inner in value.get("M", {}):
            broken = deepcopy(item)
            broken[name]["M"][inner] = {"NULL": True}
            yield broken


def refusal(kind: str, item: dict[str, Any]) -> LockItemMalformed | None:
    try:
        READERS[kind](item)
    except LockItemMalformed as error:
        return error
    return None


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_item_is_read_or_named_and_no_owner_id_is_shown(kind: str) -> None:
    item = written_items()[kind]
    errors = [error for broken in damaged(item) if (error := refusal(kind, broken)) is not None]
    assert len(errors) > 3
    assert {error.partition_key for error in errors} == {item["pk"]["S"]}
    for error in errors:
        assert ANNA not in "".join(traceback.format_exception(error))
