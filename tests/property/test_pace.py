"""Fleets that take turns keep the pace, whatever fails; without any one of its rules they do not.

`PACE_SEEDS=300 pytest tests/property/test_pace.py` plays each fleet so often.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import pytest

from fairlock.protocol import pace
from fairlock.store import turns
from tests.property.pace_fleet import Fleet, faults, played
from tests.support.weakened import Patch, edited, patched, weak

pytestmark = pytest.mark.cached

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
LATE: Final = Fleet(slow=2, frozen=30, waits=(0.0, 120.0))
FLEETS: Final = {
    "right clocks and a network that works": Fleet(),
    "wrong clocks": Fleet(**WRONG_CLOCKS),
    "lost and repeated requests, late copies": Fleet(**LOSSES),
    "slow answers and processes that stand still": LATE,
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


def _both_forms_without(condition: str) -> tuple[Patch, ...]:
    return tuple(weak(turns, name, condition) for name in ("reserve_idle", "reserve_next"))


REFUSED_FOR_SURE: Final = edited(turns.Turn, "_refused", "not is_certain", "False")
MUTANTS: Final[dict[str, tuple[Fleet, str, tuple[Patch, ...]]]] = {
    "idle by the late edge": (
        ALL,
        "within an interval|before it|callers begin within",
        (edited(pace, "reserve_idle", "now.early_us", "now.late_us"),),
    ),
    "idle writes by the early edge": (
        Fleet(**WRONG_CLOCKS),
        "found no other",
        (edited(pace, "reserve_idle", "now.late_us", "now.early_us"),),
    ),
    "idle asks for nothing": (
        Fleet(**LOSSES, waits=(30.0,)),
        "callers begin within",
        (
            weak(
                turns,
                "reserve_idle",
                "(attribute_not_exists(#next_slot_us) OR #next_slot_us <= :early)",
            ),
        ),
    ),
    "waits by the late edge": (
        Fleet(**WRONG_CLOCKS),
        "before it",
        (edited(pace.Slot, "wait_us", "now.early_us", "now.late_us"),),
    ),
    "no slot is ever over": (
        LATE,
        "callers begin within",
        ((pace.Slot, "is_over", lambda _slot, _now: False),),
    ),
    "finds no slot of its own": (
        HOURLY,
        "that was refused",
        (edited(turns.Turn, "reserve", "is_mine = ", "is_mine = False and "), REFUSED_FOR_SURE),
    ),
    "asks for no id": (
        Fleet(**LOSSES),
        "a copy, reserves another",
        _both_forms_without("(attribute_not_exists(#reservation_id) OR #reservation_id <> :id)"),
    ),
    "reserves again whatever came": (
        Fleet(slow=2, frozen=30, copies=0.5, waits=(120.0,)),
        "a copy, reserves another",
        _both_forms_without("#next_slot_us = :seen"),
    ),
    "waits as long as it takes": (
        Fleet(pause=3),
        "a caller waits for",
        (edited(pace, "reserve_next", "request.max_wait_us", "10**12"),),
    ),
    "takes every refusal for certain": (BURSTS, "that was refused", (REFUSED_FOR_SURE,)),
    "forgets its slot": (
        LONG_WAITS,
        "that was refused",
        (edited(turns.Turn, "take", "while True:", "self._slot = None\n    while True:"),),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_rule_a_promise_is_broken(name: str) -> None:
    fleet, broken, patches = MUTANTS[name]
    with patched(patches):
        for seed in range(_MOST_SEEDS_OF_A_MUTANT):
            if any(re.search(broken, fault) for fault in faults(played(fleet, seed))):
                return
    pytest.fail(f"{name} breaks nothing in {_MOST_SEEDS_OF_A_MUTANT} runs")
