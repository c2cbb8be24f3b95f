"""The error tree, which workflows match on by class name."""

from __future__ import annotations

import copy
import inspect
import json
import multiprocessing
import pickle
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlock
from fairlock import backoff, errors
from fairlock.backoff import advise_retry_seconds, doubled
from fairlock.clock import SystemClock, iso_utc
from fairlock.errors import (
    CancellationReason,
    DescribedCeiling,
    FairlockError,
    InvalidRequest,
    LockLost,
    LockStoreUnavailable,
    LockWaitTimeout,
    SlotTooLate,
)
from fairlock.protocol.schema import ttl_seconds
from fairlock.text import shorten
from fairlock.wire.rules import LATEST_EPOCH_MS
from tests.support import HOLDER

BUILT_IN = {
    InvalidRequest: ValueError,
    LockWaitTimeout: TimeoutError,
    SlotTooLate: TimeoutError,
}


def all_errors() -> list[type[FairlockError]]:
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    return [kind for kind in kinds if issubclass(kind, FairlockError)]


def test_the_class_names_are_those_that_workflows_match_on_and_none_is_a_kind_of_another() -> None:
    assert FairlockError.__bases__ == (Exception,)
    assert len(all_errors()) > 10
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, BaseException) and kind is not FairlockError:
            assert kind.__bases__ == (FairlockError, *filter(None, [BUILT_IN.get(kind)]))
    named = (InvalidRequest, LockStoreUnavailable, LockWaitTimeout, LockLost, FairlockError)
    for kind in named:
        assert getattr(fairlock, kind.__name__) is kind
        assert kind.__name__ in fairlock.__all__


def test_a_timeout_has_no_number_of_the_operating_system_and_the_text_of_its_own() -> None:
    error = LockWaitTimeout("lock 'a': held by anna", lock_name="a")
    assert (error.errno, error.strerror, error.filename) == (None, None, None)
    assert (str(error), error.args) == ("lock 'a': held by anna", ("lock 'a': held by anna",))
    assert repr(error) == """LockWaitTimeout("lock 'a': held by anna")"""
    assert LockWaitTimeout().args == ("",)


@pytest.mark.parametrize("way", ["pickled", "copied", "copied deeply"])
def test_a_timeout_made_without_its_init_keeps_its_text_only_if_that_is_set(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: `OSError.__new__` leaves the arguments to an `__init__` of a subclass."""
    error = LockWaitTimeout("why", lock_name="a", waited_seconds=1.5, holders=(HOLDER,))
    assert (error.lock_name, error.waited_seconds, error.holders) == ("a", 1.5, (HOLDER,))
    again = COPIES[way](error)
    assert isinstance(again, LockWaitTimeout)
    assert (str(again), again.holders, again.errno) == ("why", (HOLDER,), None)
    monkeypatch.setattr(errors, "_rebuilt", only_new)
    assert str(COPIES[way](error)) == ""


def only_new(kind: type[FairlockError], args: tuple[Any, ...]) -> FairlockError:
    return kind.__new__(kind, *args)


def test_an_invalid_request_carries_its_parts() -> None:
    error = InvalidRequest(field="limit", rule="must be even", value=3)
    assert (error.field, error.rule, error.value) == ("limit", "must be even", "3")
    assert str(error) == "limit: must be even (got 3)"


SAMPLES: dict[str, Any] = {
    "str": "some text",
    "str | None": "more text",
    "float": 1.5,
    "int": 7,
    "bool": False,
    "object": {"a": 1},
    "tuple[DescribedHolder, ...]": (HOLDER,),
    "DescribedCeiling | None": DescribedCeiling(
        limit=0, at=datetime(2030, 1, 1, tzinfo=UTC), requested_by="olga", reason="freeze"
    ),
    "tuple[CancellationReason, ...]": (CancellationReason(code="ConditionalCheckFailed"),),
}


def example(kind: type[FairlockError]) -> FairlockError:
    """An error whose arguments all have values; fails for an argument of a type not heard of."""
    if kind.__init__ is Exception.__init__:
        return kind("why")
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    by_place = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return kind(
        *(SAMPLES[p.annotation] for p in by_place),
        **{p.name: SAMPLES[p.annotation] for p in by_name},
    )


COPIES: dict[str, Callable[[FairlockError], FairlockError]] = {
    "pickled": lambda error: cast("FairlockError", pickle.loads(pickle.dumps(error))),  # noqa: S301 - our own bytes
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", all_errors())
def test_an_error_comes_out_of_another_process_with_all_that_it_carried(
    kind: type[FairlockError], way: str
) -> None:
    error = example(kind)
    error.add_note("a note")
    again = COPIES[way](error)
    assert type(again) is kind
    assert (str(again), again.args) == (str(error), error.args)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("way", COPIES)
def test_without_a_way_of_their_own_errors_would_not_come_out(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(FairlockError, "__reduce__")
    with pytest.raises(TypeError, match="argument"):
        COPIES[way](InvalidRequest(field="limit", rule="must be even", value=3))


def test_a_process_pool_survives_an_invalid_request() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for limit in (3, 5):
            with pytest.raises(InvalidRequest, match=f"got {limit}"):
                pool.submit(refuse, limit).result(timeout=60)


def refuse(limit: int) -> None:
    raise InvalidRequest(field="limit", rule="must be even", value=limit)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        ("", "''"),
        ("it's", '"it\'s"'),
        ("a\nb", "'a\\nb'"),
        ("\ud800", "'\\ud800'"),
        ("x" * 60, f"'{'x' * 60}'"),
        ("x" * 61, f"'{'x' * 59}… (61 characters)"),
        ("\0" * 60, f"'{(chr(92) + 'x00') * 14}{chr(92)}x0… (60 characters)"),
        ([1] * 20, "a list of 20 elements"),
        ({"owner_id": "x"}, "an object with 1 fields"),
        pytest.param(10**5000, "a value of type int that is too large to show", id="digits"),
    ],
)
def test_a_value_is_shown_as_a_literal_of_sixty_characters_at_most_and_no_contents(
    value: object, shown: str
) -> None:
    assert shorten(value) == shown


SECRET = "5f0e7c1e-9c1f-4c57-9d43-1f0a8a7d3b21"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("owner_id", SECRET),
        ("ownerId", SECRET),
        ("request", json.dumps({"owner_id": SECRET})),
        ("lock_name", json.dumps(json.dumps({"owner_id": SECRET}), indent=1) + "\n"),
        ("data", {"nested": [{"owner_id": SECRET}]}),
        ("data", [SECRET]),
        ("limit", (SECRET,)),
        (SECRET, "owner_id"),
        (SECRET.replace("-", ""), "owner_id"),
    ],
)
def test_no_owner_id_is_shown_wherever_a_caller_writes_it(field: str, value: object) -> None:
    error = InvalidRequest(field=field, rule="must be even", value=value, show_text=False)
    for text in (str(error), repr(error), str(vars(error))):
        assert SECRET not in text
        assert SECRET.replace("-", "") not in text
        assert SECRET[:8] not in text


def test_the_character_that_breaks_a_rule_is_named_without_the_text_around_it() -> None:
    error = InvalidRequest(field="lock_name", rule="no!", value=f"{SECRET}\u202e", show_text=False)
    assert error.value == "text of 37 characters, with U+202E"


@pytest.mark.parametrize("field", ["ownerid", "lock_nmae", "Limit", "execution_arn", "max_wait"])
def test_a_misspelled_field_is_named(field: str) -> None:
    assert InvalidRequest(field=field, rule="no!", value=1).field == field


# Times as they are shown, and the clock of this machine.


@pytest.mark.parametrize(
    ("epoch_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (1_896_081_300_250, "2030-01-31T09:15:00.250Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
        (LATEST_EPOCH_MS, "9999-12-31T23:59:59.999Z"),
        (10**40, "9999-12-31T23:59:59.999Z"),
        (-1, "1970-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_iso_8601_in_utc_with_milliseconds(epoch_ms: int, shown: str) -> None:
    assert iso_utc(epoch_ms) == shown


@given(st.integers(min_value=0, max_value=LATEST_EPOCH_MS))
def test_a_time_that_is_shown_can_be_read_back_exactly(epoch_ms: int) -> None:
    read = datetime.fromisoformat(iso_utc(epoch_ms))
    assert round(read.timestamp() * 1000) == epoch_ms


def test_the_system_clock_tells_epoch_milliseconds_and_waits_on_its_monotonic_clock() -> None:
    clock, before = SystemClock(), time.time_ns() // 1_000_000
    assert before <= clock.wall_ms() <= time.time_ns() // 1_000_000
    began = clock.monotonic()
    clock.wait(0.01)
    assert 0.01 <= clock.monotonic() - began < 30


def test_the_ttl_is_48_hours_ahead_in_epoch_seconds() -> None:
    assert ttl_seconds(1_900_000_000_999) == 1_900_000_000 + 48 * 3600


# The advice when to ask again: grows with the wait, jittered, whole seconds, not past a lease.

NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
FRACTIONS = st.floats(min_value=0, max_value=1, exclude_max=True)


def advice(*, waited_ms: int | None, ends_in_ms: Sequence[int] = (), fraction: float = 0.5) -> int:
    return advise_retry_seconds(
        now_ms=NOW_MS,
        waiting_since_ms=None if waited_ms is None else NOW_MS - waited_ms,
        lease_ends_ms=[NOW_MS + ends_in for ends_in in ends_in_ms],
        random=lambda: fraction,
    )


WAITED_SECONDS = {0: 1, 5: 1, 10: 2, 60: 12, 250: 50, 300: 60, 3600: 60, 86_400: 60}


@pytest.mark.parametrize(
    ("waited_ms", "seconds"),
    [
        *((1000 * waited, advised) for waited, advised in WAITED_SECONDS.items()),
        (None, 1),  # A first try.
        (NOW_MS, 60),  # An entry at the beginning of time.
        (-HOUR_MS, 1),  # The caller's clock is ahead.
    ],
)
def test_the_advice_is_a_fifth_of_the_wait_so_far_from_a_second_to_a_minute(
    waited_ms: int | None, seconds: int
) -> None:
    assert advice(waited_ms=waited_ms) == seconds


@given(
    waited_ms=st.integers(min_value=-HOUR_MS, max_value=10**12),
    ends_in_ms=st.lists(st.integers(min_value=-HOUR_MS, max_value=12 * HOUR_MS)),
    fraction=FRACTIONS,
)
def test_the_advice_is_whole_seconds_from_one_to_ninety(
    waited_ms: int, ends_in_ms: list[int], fraction: float
) -> None:
    seconds = advice(waited_ms=waited_ms, ends_in_ms=ends_in_ms, fraction=fraction)
    assert type(seconds) is int
    assert 1 <= seconds <= 90


@given(ends_in_ms=st.integers(min_value=1, max_value=12 * HOUR_MS), fraction=FRACTIONS)
def test_the_advice_is_never_two_seconds_past_the_end_of_a_lease(
    ends_in_ms: int, fraction: float
) -> None:
    """Up to a second of jitter, then rounded up; but at least a fiftieth of the wait so far."""
    seconds = advice(waited_ms=10 * MINUTE_MS, ends_in_ms=[ends_in_ms], fraction=fraction)
    assert seconds * 1000 < max(ends_in_ms, 12_000) + 2000


def test_of_several_leases_the_one_that_ends_next_counts_and_none_that_is_over() -> None:
    ends_in_ms = [40_000, 7_000, 20_000, -5_000]
    assert advice(waited_ms=5 * MINUTE_MS, ends_in_ms=ends_in_ms, fraction=0) == 7
    assert advice(waited_ms=HOUR_MS, ends_in_ms=[-1, -HOUR_MS, 0]) == 60


def test_jitter_of_a_half_spreads_callers_that_were_refused_together() -> None:
    fractions = [i / 1000 for i in range(1000)]
    seen = {advice(waited_ms=HOUR_MS, fraction=fraction) for fraction in fractions}
    assert seen == set(range(30, 91))


def polls_within(wait_ms: int, source: random.Random, ends_in_ms: Sequence[int] = ()) -> int:
    waited_ms = polls = 0
    while waited_ms < wait_ms:
        polls += 1
        seconds = advice(waited_ms=waited_ms, ends_in_ms=ends_in_ms, fraction=source.random())
        waited_ms += 1000 * seconds
    return polls


def test_a_day_of_polling_fits_into_an_executions_history_whatever_the_lease() -> None:
    """At nine events a poll, a history of 25,000 events ends at the 2,777th."""
    source = random.Random(1)  # noqa: S311 - jitter, no secret
    for lease_ends_in_ms in (1, 1_000, 6_000, 60_000):
        assert polls_within(24 * HOUR_MS, source, [lease_ends_in_ms]) < 2_500


def test_an_hour_of_waiting_costs_under_a_hundred_polls() -> None:
    counts = [polls_within(HOUR_MS, random.Random(seed)) for seed in range(50)]  # noqa: S311 - jitter, no secret
    assert 60 < min(counts) <= max(counts) < 100


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_the_pause_of_an_outage_of_hours_is_the_longest_one(
    monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    assert [doubled(0.1, times, longest=1) for times in range(5)] == [0.1, 0.2, 0.4, 0.8, 1]
    if protected:
        assert doubled(0.1, 100_000, longest=1) == 1
    else:
        monkeypatch.setattr(backoff, "_MOST_DOUBLINGS", 100_000)
        with pytest.raises(OverflowError):
            doubled(0.1, 100_000, longest=1)
