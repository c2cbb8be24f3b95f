"""A slot of a pace is one write; `tests/property/test_pace.py` says what fleets rely on.

Times are those of the clock that the test moves. AWS's time is known within a second of it, either
way: so a caller that waits begins a second after its slot, and the slot after an idle caller is an
interval and a second away.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from fairlock.protocol import pace
from fairlock.protocol.pace import MICROSECONDS, PaceRequest, PaceState, Slot, TooLate, interval_us
from fairlock.protocol.schema import pace_key
from fairlock.store.turns import KnownPaces, Turn
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE, Operations, acquire, release, store_over
from tests.support.clocks import WrongClock
from tests.support.faulty_table import FaultyTable, delay
from tests.support.memory_tables import MeteredTable
from tests.support.store_bench import Wire

UPDATES = ("update_item",)
HOUR = 3600
_SECOND = MICROSECONDS


@dataclass
class Process:
    """One process that takes turns, and counts its requests."""

    table: Any
    clock: WrongClock
    known: KnownPaces = field(default_factory=KnownPaces)

    def turn(self, name: str, *, since: float | None = None, **fields: Any) -> Turn:  # noqa: ANN401 - of the request
        return Turn(asked(name, **fields), self.known, since=since)

    def reserve(self, name: str, **fields: Any) -> Slot | TooLate:  # noqa: ANN401 - same
        return self.turn(name, **fields).reserve(self.context())

    def take(self, name: str, **fields: Any) -> TooLate | None:  # noqa: ANN401 - same
        turn = self.turn(name, since=self.clock.monotonic(), **fields)
        return turn.take(self.context())

    @property
    def item(self) -> dict[str, Any]:
        return dict(self.table.inner.get_item(TableName=TABLE, Key=pace_key("vendor"))["Item"])

    @property
    def state(self) -> PaceState:
        found = pace.read_pace("vendor", self.item)
        assert found is not None
        return found

    def context(self) -> Any:  # noqa: ANN401 - a context
        return store_over(self.table, self.clock).context


def asked(name: str, *, rate: tuple[int, float] = (10, 60), **fields: Any) -> PaceRequest:  # noqa: ANN401 - of the request
    wait = round(fields.pop("max_wait", 0) * MICROSECONDS)
    return PaceRequest(
        name="vendor",
        reservation_id=f"{name:->16}",
        interval_us=interval_us(*rate),
        max_wait_us=wait,
        **fields,
    )


@pytest.fixture
def one(dynamodb: object, clock: ManualClock) -> Process:
    return Process(FaultyTable(dynamodb), WrongClock(clock))


@pytest.fixture
def other(dynamodb: object, clock: ManualClock) -> Process:
    return Process(FaultyTable(dynamodb), WrongClock(clock))


def test_the_first_caller_begins_at_once_by_one_write(one: Process) -> None:
    assert one.take("anna") is None
    assert (one.clock.waits, one.table.calls) == ([], ["update_item"])


def test_a_process_that_knows_that_a_pace_is_busy_writes_once(one: Process) -> None:
    one.reserve("anna")
    one.table.calls.clear()
    slots = [one.reserve(f"ben-{number}", max_wait=60) for number in range(5)]
    assert one.table.calls == ["update_item"] * 5
    begins = [slot.begins_us for slot in slots if isinstance(slot, Slot)]
    assert [b - a for a, b in pairwise(begins)] == [6 * _SECOND] * 4


def test_a_slot_that_is_too_late_is_refused_and_nothing_is_written(
    one: Process, other: Process
) -> None:
    one.reserve("anna")
    before = one.state
    assert other.reserve("ben") == TooLate(wait_us=8 * _SECOND)
    assert other.reserve("ben", max_wait=7.9) == TooLate(wait_us=8 * _SECOND)
    assert one.state == before
    assert other.table.calls == ["update_item"] * 2
    assert isinstance(other.reserve("ben", max_wait=8), Slot)


def test_after_a_pause_only_a_burst_begins_at_once(one: Process) -> None:
    for burst, expected in ((1, 1), (4, 4)):
        one.clock.advance(HOUR)
        found = [one.reserve(f"{burst}-{number}", burst=burst) for number in range(8)]
        # The interval is five minutes, so that the edges of AWS's time take no slot of the burst.
        assert sum(isinstance(slot, Slot) for slot in found) <= expected
    one.clock.advance(HOUR)
    found = [one.reserve(f"{number}", rate=(12, HOUR), burst=4) for number in range(8)]
    assert [isinstance(slot, Slot) for slot in found] == [True] * 3 + [False] * 5
    one.clock.advance(2)  # Now that is certain.
    assert isinstance(one.reserve("last", rate=(12, HOUR), burst=4), Slot)


def test_a_rate_is_never_exceeded_by_rounding() -> None:
    assert interval_us(7, 60) * 7 >= 60 * MICROSECONDS
    assert interval_us(10, 60) == 6 * MICROSECONDS


def test_a_lost_request_is_refused_for_certain_if_the_last_slot_is_one_of_before(
    one: Process, other: Process
) -> None:
    hourly = one.turn("anna", rate=(1, HOUR))
    wire = Wire(one.table.inner, "SET #next_slot_us", held_back=True)
    one.table.inner = wire
    with pytest.raises(LockStoreUnavailable):
        hourly.reserve(one.context())
    one.table.inner = wire.inner
    assert isinstance(other.reserve("ben", rate=(1, HOUR)), Slot)
    assert isinstance(hourly.reserve(one.context()), TooLate)
    assert not wire.land()


def test_a_late_copy_of_a_second_reservation_takes_no_slot(one: Process) -> None:
    wire = Wire(one.table.inner, "#next_slot_us = :seen")
    one.table.inner = wire
    one.table.will(delay(8, one.clock.true, 1, of=UPDATES, late=True))
    one.reserve("anna", max_wait=30)
    before = one.state
    assert not wire.land()
    assert one.state == before


def test_a_caller_that_is_held_up_past_its_own_slot_may_be_refused(one: Process) -> None:
    """Its first slot is wasted, as that of a dead caller is."""
    one.table.will(delay(2 * HOUR, one.clock.true, 1, of=UPDATES, late=True))
    assert isinstance(one.reserve("anna", rate=(1, HOUR)), Slot)  # It was over, and an idle one
    assert isinstance(one.reserve("ben", rate=(1, HOUR)), TooLate)  # was reserved in its place.


def test_a_wait_of_hours_reads_the_time_every_ten_minutes(one: Process, other: Process) -> None:
    one.take("anna", rate=(1, HOUR))
    assert other.take("ben", rate=(1, HOUR), max_wait=2 * HOUR) is None
    assert other.table.calls == ["update_item"] * 2 + ["get_item"] * 6


def test_ttl_spares_an_item_for_two_days_after_its_last_slot(one: Process) -> None:
    for number in range(3):
        one.reserve(f"{number}", rate=(1, HOUR), max_wait=10 * HOUR)
        item = one.item
        after = int(item["expiry_time"]["N"]) - one.state.next_us / MICROSECONDS
        assert 48 * HOUR <= after <= (48 + 11) * HOUR


def test_an_item_that_was_deleted_is_made_again(one: Process) -> None:
    one.reserve("anna")
    one.table.inner.delete_item(TableName=TABLE, Key=pace_key("vendor"))
    assert isinstance(one.reserve("ben"), Slot)


def test_an_item_that_someone_has_changed_is_named(one: Process) -> None:
    one.reserve("anna")
    key: Any = pace_key("vendor")
    one.table.inner.put_item(TableName=TABLE, Item={**key, "next_slot_us": {"N": "9" * 17}})
    with pytest.raises(LockItemMalformed, match="PACE#vendor"):
        one.reserve("ben")


def test_a_pace_and_a_lock_of_one_name_have_nothing_to_do_with_each_other(
    store: Operations, one: Process
) -> None:
    one.reserve("anna")
    assert store.describe("vendor") is None
    assert list(store.list_locks()) == []
    store.acquire(acquire("anna", lock_name="vendor"))
    assert [lock.name for lock in store.list_locks()] == ["vendor"]  # type: ignore[union-attr]
    store.release(release("anna", lock_name="vendor"))
    assert isinstance(one.reserve("ben"), TooLate)


def test_each_write_costs_one_unit(clock: ManualClock) -> None:
    metered = MeteredTable(MemoryTable())
    process = Process(metered, WrongClock(clock))
    for number in range(10):
        process.reserve(f"{number}", max_wait=600)
    assert metered.write_units == 10
    with suppress(KeyError):
        process.reserve("late")
    assert metered.write_units == 11  # A refusal costs a unit, too.


def test_what_is_forgotten_of_a_name_costs_one_write_more(one: Process) -> None:
    one.reserve("anna")
    for number in range(1_000):
        one.known.note(f"another-{number}", None)
    one.table.calls.clear()
    one.reserve("ben", max_wait=60)
    assert one.table.calls == ["update_item"] * 2
