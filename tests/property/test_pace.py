"""Fleets that take turns keep the pace, whatever fails; without any one of its rules they do not.

`PACE_SEEDS=300 pytest tests/property/test_pace.py` plays each fleet so often.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from fairlock.protocol import pace
from fairlock.protocol.pace import AwsTime, PaceRequest, PaceState, Slot, TooLate
from fairlock.protocol.table_requests import Update
from fairlock.store import turns
from tests.property.pace_fleet import Fleet, faults, played

SEEDS: Final = int(os.environ.get("PACE_SEEDS", "12"))
_MOST_SEEDS_OF_A_MUTANT: Final = 200

WRONG_CLOCKS: Final[dict[str, Any]] = {"wall": 240, "drift": 3e-4, "front_ends": 0.4}
LOSSES: Final[dict[str, Any]] = {"lost_requests": 0.15, "lost_replies": 0.15, "copies": 0.3}
ALL: Final = Fleet(**WRONG_CLOCKS, **LOSSES, slow=0.5, frozen=5)
HOURLY: Final = Fleet(
    rate=(1, 3600), waits=(0.0,), pause=5_000, processes=10, **WRONG_CLOCKS, **LOSSES
)
BURSTS: Final = Fleet(burst=4, waits=(0.0, 60.0), **WRONG_CLOCKS, **LOSSES)
LONG_WAITS: Final = Fleet(rate=(1, 700), waits=(1_500.0, 3_000.0), pause=700, calls=4, **LOSSES)
FLEETS: Final = {
    "right clocks and a network that works": Fleet(),
    "wrong clocks": Fleet(**WRONG_CLOCKS),
    "lost and repeated requests, late copies": Fleet(**LOSSES),
    "slow answers and processes that stand still": Fleet(slow=2, frozen=30, waits=(0.0, 120.0)),
    "all at once": ALL,
    "bursts of four": BURSTS,
    "slots closer than the edges of AWS's time": Fleet(
        rate=(10, 1), pause=0.3, waits=(0.0, 3.0), **WRONG_CLOCKS, **LOSSES
    ),
    "one an hour, or not at all": HOURLY,
    "waits so long that the time is read meanwhile": LONG_WAITS,
}


def found(fleet: Fleet, seeds: range) -> set[str]:
    return {fault for seed in seeds for fault in faults(played(fleet, seed))}


@pytest.mark.parametrize("name", FLEETS)
def test_a_fleet_keeps_the_pace(name: str) -> None:
    assert found(FLEETS[name], range(SEEDS)) == set()


def test_a_fleet_that_loses_nothing_wastes_no_slot() -> None:
    run = played(Fleet(**WRONG_CLOCKS), 1)
    assert len(run.begun()) == len(run.slots) > 10


Patch = Callable[[pytest.MonkeyPatch], None]


def idle_by_the_late_edge(patch: pytest.MonkeyPatch) -> None:
    def reserve(request: PaceRequest, now: AwsTime, *, over: PaceState | None) -> Update:
        return pace.reserve_idle(request, AwsTime(now.late_us, now.late_us), over=over)

    patch.setattr(turns, "reserve_idle", reserve)


def idle_writes_by_the_early_edge(patch: pytest.MonkeyPatch) -> None:
    def reserve(request: PaceRequest, now: AwsTime, *, over: PaceState | None) -> Update:
        return pace.reserve_idle(request, AwsTime(now.early_us, now.early_us), over=over)

    patch.setattr(turns, "reserve_idle", reserve)


def idle_asks_for_nothing(patch: pytest.MonkeyPatch) -> None:
    def reserve(request: PaceRequest, now: AwsTime, *, over: PaceState | None) -> Update:
        condition = "(attribute_not_exists(#next_slot_us) OR #next_slot_us <= :early) AND "
        return without(pace.reserve_idle(request, now, over=over), condition)

    patch.setattr(turns, "reserve_idle", reserve)


def waits_by_the_late_edge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "wait_us", lambda slot, now: max(0, slot.begins_us - now.late_us))


def no_slot_is_ever_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Slot, "is_over", lambda _slot, _now: False)


def finds_no_slot_of_its_own(patch: pytest.MonkeyPatch) -> None:
    def read(name: str, item: Any) -> PaceState | None:  # noqa: ANN401 - an item
        state = pace.read_pace(name, item)
        return state and replace(state, reservation_id="")

    patch.setattr(turns, "read_pace", read)
    patch.setattr(turns.Turn, "_refused", refused_for_sure)


def asks_for_no_id(patch: pytest.MonkeyPatch) -> None:
    _without_in_both_forms(
        patch, " AND (attribute_not_exists(#reservation_id) OR #reservation_id <> :id)"
    )


def reserves_again_whatever_came(patch: pytest.MonkeyPatch) -> None:
    _without_in_both_forms(patch, " AND #next_slot_us = :seen")


def waits_as_long_as_it_takes(patch: pytest.MonkeyPatch) -> None:
    def reserve(request: PaceRequest, now: AwsTime, *, over: PaceState | None) -> Update:
        return pace.reserve_next(replace(request, max_wait_us=10**12), now, over=over)

    patch.setattr(turns, "reserve_next", reserve)


def takes_every_refusal_for_certain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(turns.Turn, "_refused", refused_for_sure)


def forgets_its_slot(patch: pytest.MonkeyPatch) -> None:
    take = turns.Turn.take

    def take_another(turn: Any, context: Any) -> TooLate | None:  # noqa: ANN401 - of a Turn
        turn._slot = None  # noqa: SLF001 - as it was before the call
        return take(turn, context)

    patch.setattr(turns.Turn, "take", take_another)


def refused_for_sure(turn: Any, state: PaceState, now: AwsTime) -> TooLate:  # noqa: ANN401 - a Turn
    return TooLate(wait_us=turn._request.wait_us(state.next_us, now))  # noqa: SLF001 - as it does


def _without_in_both_forms(patch: pytest.MonkeyPatch, condition: str) -> None:
    for name in ("reserve_idle", "reserve_next"):
        form = getattr(pace, name)
        patch.setattr(
            turns,
            name,
            lambda request, now, *, over, form=form: without(
                form(request, now, over=over), condition
            ),
        )


def without(update: Update, condition: str) -> Update:
    """The same write without a part of its condition."""
    left = update.condition.replace(condition, "")
    used = set(re.findall(r"[#:]\w+", f"{update.change} {left}"))
    return replace(
        update,
        condition=left,
        names={name: of for name, of in update.names.items() if name in used},
        values={name: value for name, value in update.values.items() if name in used},
    )


LATE: Final = Fleet(slow=2, frozen=30, waits=(0.0, 120.0))
MUTANTS: Final[dict[Patch, tuple[Fleet, str]]] = {
    idle_by_the_late_edge: (ALL, "within an interval|before it|callers begin within"),
    idle_writes_by_the_early_edge: (Fleet(**WRONG_CLOCKS), "found no other"),
    idle_asks_for_nothing: (Fleet(**LOSSES, waits=(30.0,)), "callers begin within"),
    waits_by_the_late_edge: (Fleet(**WRONG_CLOCKS), "before it"),
    no_slot_is_ever_over: (LATE, "callers begin within"),
    finds_no_slot_of_its_own: (HOURLY, "that was refused"),
    asks_for_no_id: (Fleet(**LOSSES), "a copy, reserves another"),
    reserves_again_whatever_came: (
        Fleet(slow=2, frozen=30, copies=0.5, waits=(120.0,)),
        "a copy, reserves another",
    ),
    waits_as_long_as_it_takes: (Fleet(pause=3), "a caller waits for"),
    takes_every_refusal_for_certain: (BURSTS, "that was refused"),
    forgets_its_slot: (LONG_WAITS, "that was refused"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda patch: patch.__name__)
def test_without_the_rule_a_promise_is_broken(
    mutant: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, broken = MUTANTS[mutant]
    mutant(monkeypatch)
    for seed in range(_MOST_SEEDS_OF_A_MUTANT):
        told = {fault for fault in faults(played(fleet, seed)) if re.search(broken, fault)}
        if told:
            return
    pytest.fail(f"{mutant.__name__} breaks nothing in {_MOST_SEEDS_OF_A_MUTANT} runs")
