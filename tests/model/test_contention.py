"""Every state that a few clients can bring about, through the real code, request by request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.conftest import Searches
from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.known_gaps import DELAYED_DUPLICATE
from tests.model.request_names import DESCRIBE, NEVER_SEEN, PUSH, READ, STEP_NAMES

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
    record_property(
        "figures", f"the model: {len(reports)} configurations of the protocol, {states:,} states"
    )
    assert states >= _FEWEST_STATES
    assert min(report.states for report in reports) > 1_000
    assert max(len(c.clients) for c in CONFIGURATIONS) >= 4


def test_every_request_that_the_protocol_can_make_is_a_step_of_the_model(
    searches: Searches,
) -> None:
    reports = [searches.configuration(c.name) for c in CONFIGURATIONS]
    taken = frozenset[str]().union(*(report.names for report in reports))
    # Nobody lowers a limit by more than one acquire can make room for.
    assert taken == STEP_NAMES - NEVER_SEEN - {"evict"} | {PUSH, DESCRIBE, READ}


@pytest.mark.xfail(
    strict=True,
    reason="the lock remembers only the last one who released; such a grant ends by its lease, and "
    "that of a workflow when its execution is over",
)
def test_a_delayed_acquire_never_takes_the_lock_again(searches: Searches) -> None:
    assert searches.configuration(DELAYED_DUPLICATE.name).trace == ()
