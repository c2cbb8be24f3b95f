"""Every state that a few clients can bring about, through the real code, request by request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.configurations import CONFIGURATIONS
from tests.model.conftest import Searches
from tests.model.known_gaps import DELAYED_DUPLICATE, LATE_POLL, MIXED_LIMITS, SENT_TWICE
from tests.model.naming import LIVENESS, PUSH, STEP_NAMES

_FEWEST_STATES = 400_000


@pytest.mark.parametrize("name", [c.name for c in CONFIGURATIONS])
def test_all_promises_hold_in_every_state(searches: Searches, name: str) -> None:
    report = searches.configuration(name)
    assert (report.broken, report.trace) == (None, ())


def test_the_searches_see_enough_states(
    searches: Searches, record_property: Callable[[str, object], None]
) -> None:
    reports = [searches.configuration(c.name) for c in CONFIGURATIONS]
    states = sum(report.states for report in reports)
    record_property("states", states)
    assert states >= _FEWEST_STATES
    assert min(report.states for report in reports) > 1_000
    assert max(len(c.clients) for c in CONFIGURATIONS) >= 4


def test_every_request_that_the_protocol_can_make_is_a_step_of_the_model(
    searches: Searches,
) -> None:
    reports = [searches.configuration(c.name) for c in (*CONFIGURATIONS, MIXED_LIMITS, LATE_POLL)]
    taken = frozenset[str]().union(*(report.names for report in reports))
    assert taken == STEP_NAMES | {PUSH, LIVENESS}


@pytest.mark.xfail(
    strict=True,
    reason="joining a contended lock with a higher limit than others want may miss a free permit; "
    "its fallback poll heals it",
)
def test_clients_that_want_different_limits_miss_no_permit(searches: Searches) -> None:
    assert searches.configuration(MIXED_LIMITS.name).trace == ()


@pytest.mark.xfail(
    strict=True,
    reason="vacate does not know its own write again if boto3 sends it twice",
)
def test_a_release_that_boto3_sends_twice_is_a_release(searches: Searches) -> None:
    assert searches.configuration(SENT_TWICE.name).trace == ()


@pytest.mark.xfail(
    strict=True,
    reason="a waiter that is to be dropped and asks again in this moment is passed over once",
)
def test_a_polling_waiter_that_asks_just_in_time_keeps_its_place(searches: Searches) -> None:
    assert searches.configuration(LATE_POLL.name).trace == ()


@pytest.mark.xfail(
    strict=True,
    reason="the lock remembers only the last one who released; the lease ends such a grant",
)
def test_a_delayed_acquire_never_takes_the_lock_again(searches: Searches) -> None:
    assert searches.configuration(DELAYED_DUPLICATE.name).trace == ()
