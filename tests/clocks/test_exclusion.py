"""A holder and a contender never both hold a lock, however wrong their clocks are.

`CLOCK_TRIALS=3000 pytest tests/clocks` tries each kind of weather so often, and prints the figures.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any, Final

import pytest

from fairlock import clock as clocks
from fairlock.client.heartbeats import Heartbeats
from fairlock.store import context
from tests.clocks.world import ELSEWHERE, Node, Sabotage, Weather, contend
from tests.support.weakened import Patch, patched

pytestmark = pytest.mark.cached

TRIALS: Final = int(os.environ.get("CLOCK_TRIALS", "40"))

WEATHER: Final = {
    "clocks that are right": Weather(),
    "clocks 4 minutes off": Weather(wall=240),
    "clocks 2 hours off": Weather(wall=7_200),
    "clocks that jump by an hour": Weather(jumps=3_600),
    "drift of 1 %": Weather(drift=0.01, longest_lease=600),
    "front ends 0.4 s off": Weather(front_ends=0.4),
    "answers and requests 5 s late": Weather(late=5),
    "frozen before a write": Weather(frozen=60),
    "asleep after a write": Weather(sleeps=20),
    "no Date at AWS": Weather(has_dates=False, wall=240),
    "Dates from a cache": Weather(stale=60),
    "no Date elsewhere, clocks within a second": Weather(
        has_dates=False, endpoint_url=ELSEWHERE, wall=0.95
    ),
    "all at once": Weather(wall=240, jumps=100, drift=0.01, front_ends=0.4, late=0.5, frozen=60),
}


@pytest.fixture(autouse=True)
def calm(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of holders renew by themselves, not by threads, and lose their locks."""
    caplog.set_level(logging.CRITICAL, logger="fairlock")
    monkeypatch.setattr(Heartbeats, "_start", lambda _heartbeats: None)


@pytest.mark.parametrize("name", WEATHER)
def test_no_two_hold_a_lock(name: str, record_property: Callable[[str, object], None]) -> None:
    weather = WEATHER[name]
    is_patient = weather.has_dates and not weather.stale
    found = [
        contend(weather, seed, patient=is_patient and seed % 20 == 0) for seed in range(TRIALS)
    ]
    overlaps = [one.overlap for one in found if one.overlap > 0]
    shares = [one.share for one in found if one.share is not None]
    takeovers = [one.takeover for one in found if one.takeover is not None]
    figures = f"{name}: {len(overlaps)} of {TRIALS} overlap"
    if shares:
        figures += f"; of its lease a holder has {min(shares):.2f} to {max(shares):.2f}"
    if takeovers:
        figures += f"; taken over {median(takeovers):.1f} s after its own end, {max(takeovers):.1f}"
    record_property("figures", figures)
    assert overlaps == []


@pytest.mark.parametrize(
    "name", ["clocks that are right", "clocks 4 minutes off", "front ends 0.4 s off"]
)
def test_a_dead_holder_is_replaced_within_5_s_of_the_end_of_its_lease(name: str) -> None:
    found = [contend(WEATHER[name], seed, patient=True) for seed in range(TRIALS)]
    assert all(one.takeover is not None and one.takeover < 5 for one in found)


def by_the_wall_clock(holder: Node, contender: Node) -> None:
    for node in (holder, contender):
        clock = node.locks._services.aws_clock  # noqa: SLF001 - the Date is left out
        clock._uses_dates = False  # noqa: SLF001 - same


def a_whole_lease(lease_ms: int, _expires_at_ms: int, *, date_ms: int) -> int:  # noqa: ARG001 - as `own_ms`
    return lease_ms


def never(*_: object, **__: object) -> bool:
    return False


def date_of_a_cache(response: Any) -> int | None:  # noqa: ANN401 - as boto3 answers
    return clocks._parsed(response["ResponseMetadata"]["HTTPHeaders"].get("date"))  # noqa: SLF001 - control


def counted_from_the_answer(grant: Any, *, sent: float, date_ms: int) -> Any:  # noqa: ANN401 - a Grant
    """As if the request had been sent when its answer came."""
    late = shown(grant, sent=sent, date_ms=date_ms)
    return replace(late, since=sent + 6)


shown: Final = context.shown


def stands_still_asleep(holder: Node, _contender: Node) -> None:
    """A clock that does not count suspension: what it cannot see is for fencing tokens."""
    holder.clock.notices_sleep = False


RELIES_ON_ALL: Final[tuple[Patch, ...]] = (
    (context, "own_ms", a_whole_lease),
    (context, "was_written_by_a_wrong_clock", never),
)
NO_DRIFT: Final[Patch] = (clocks, "_LARGEST_DRIFT", 0)
NO_MARGIN: Final = ((clocks, "_MARGIN_MS", 0), (clocks, "FRONT_END_MS", 0), NO_DRIFT)
LATE: Final[Patch] = (context, "shown", counted_from_the_answer)
Control = tuple[str, Sabotage] | tuple[str, tuple[Patch, ...]]
"""A weather, and what takes a protection away in it."""
CONTROLS: Final[dict[str, Control]] = {
    "all go by their wall clocks": ("clocks 4 minutes off", by_the_wall_clock),
    "all go by clocks 2 hours off": ("clocks 2 hours off", by_the_wall_clock),
    "all go by clocks that jump": ("clocks that jump by an hour", by_the_wall_clock),
    "a holder relies on its whole lease": ("clocks 4 minutes off", RELIES_ON_ALL),
    "a frozen holder relies on its whole lease": ("frozen before a write", RELIES_ON_ALL),
    "no margin for front ends": ("front ends 0.4 s off", NO_MARGIN),
    "no margin for drift": ("drift of 1 %", (NO_DRIFT,)),
    "a lease counts from the answer": ("answers and requests 5 s late", (LATE,)),
    "a Date of a cache counts": ("Dates from a cache", ((clocks, "date_in", date_of_a_cache),)),
    "AWS is taken for another place": ("no Date at AWS", ((clocks, "is_aws", never),)),
    "a clock stands still asleep": ("asleep after a write", stands_still_asleep),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_without_a_protection_two_do(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    weather, weaker = CONTROLS[name]
    sabotage, patches = (weaker, ()) if callable(weaker) else (lambda *_: None, weaker)
    overlaps, tried = 0, 0
    with patched(patches):
        while tried < max(TRIALS, 400) and (not overlaps or tried < TRIALS):
            overlaps += contend(WEATHER[weather], tried, sabotage=sabotage).overlap > 0
            tried += 1
    record_property("figures", f"{name}: {overlaps} of {tried} overlap")
    assert overlaps
