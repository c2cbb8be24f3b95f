"""Holders' records: short in the table, and the same when they are read."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from fairlock.errors import LockItemMalformed
from fairlock.protocol import items, schema
from fairlock.protocol.model import AcquireRequest
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.schema import lengthen, shorten
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.store_bench import Bench

HERE = "arn:aws:states:us-east-1:123456789012:execution:"
ELSEWHERE = "arn:aws:states:eu-west-1:123456789012:execution:"
SOME_UUID = "7d3f2c1e-9a4b-4c5d-8e6f-0123456789ab"


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def arns(bench: Bench) -> list[str | None]:
    return [holder.execution_arn for holder in bench.store().read_state(LOCK).holders]


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
    asked = acquire(
        "anna", owner_id=owner_id, owner_name=name, execution_arn=execution, limit=3, data="{}"
    )
    assert isinstance(bench.store().acquire(asked), Grant)
    (holder,) = bench.store().read_state(LOCK).holders
    found = (holder.owner_id, holder.execution_arn, holder.limit, holder.data, holder.lease_ms)
    assert found == (owner_id, execution, 3, "{}", 60_000)
    assert holder.owner_name == (name or execution)


def test_executions_of_one_account_and_region_cost_one_request_each(bench: Bench) -> None:
    client, store = bench.counting()
    for name in ("a", "b"):
        arn = f"{HERE}Billing:{name}"
        store.acquire(acquire(name, limit=3, execution_arn=arn))
    assert client.calls == ["update_item"] * 4, "two of them write claims"
    assert arns(bench) == [f"{HERE}Billing:a", f"{HERE}Billing:b"]


def test_an_execution_from_elsewhere_is_stored_in_full_by_a_second_write(bench: Bench) -> None:
    for prefix, name in ((HERE, "a"), (ELSEWHERE, "b"), (HERE, "c")):
        arn = f"{prefix}Billing:{name}"
        assert isinstance(bench.store().acquire(acquire(name, limit=3, execution_arn=arn)), Grant)
    everyone = [f"{HERE}Billing:a", f"{ELSEWHERE}Billing:b", f"{HERE}Billing:c"]
    assert arns(bench) == everyone
    bench.wait("d", limit=3, execution_arn=f"{ELSEWHERE}Billing:d")
    bench.store().release(release("a"))
    assert arns(bench) == [*everyone[1:], f"{ELSEWHERE}Billing:d"]


def test_without_that_condition_another_holders_arn_changes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr("fairlock.protocol.grants.SAME_EXECUTIONS", ":executions = :executions")
    for prefix, name in ((HERE, "a"), (ELSEWHERE, "b")):
        bench.store().acquire(acquire(name, limit=3, execution_arn=f"{prefix}Billing:{name}"))
    assert arns(bench) == [f"{ELSEWHERE}Billing:a", f"{ELSEWHERE}Billing:b"]


def test_a_record_with_a_broken_short_id_is_a_malformed_item() -> None:
    request = AcquireRequest(
        lock_name="a", owner_id=SOME_UUID, execution_arn=f"{HERE}x:{SOME_UUID}"
    )
    record = items.new_holder(request, HERE, now_ms=1)
    record["M"][schema.HOLDER_EXECUTION] = {"S": "x~broken"}  # type: ignore[index]
    item: dict[str, Any] = {
        schema.holder_attribute(SOME_UUID): record,
        schema.token_attribute(SOME_UUID): {"N": "1"},
        schema.EXECUTIONS: {"S": HERE},
    }
    with pytest.raises(LockItemMalformed):
        items.read_holder(item, SOME_UUID)
