"""Every state that a few clients can bring about, through the real code, request by request."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.request_names import DESCRIBE, PUSH, READ, REQUEST_NAMES
from tests.model.searches import Searches

_FEWEST_STATES = 400_000


@pytest.mark.parametrize("name", [c.name for c in CONFIGURATIONS])
def test_all_invariants_hold_in_every_state(searches: Searches, name: str) -> None:
    report = searches.protocol(name)
    assert (report.broken, report.trace) == (None, ())


def test_the_searches_see_enough_states(
    searches: Searches, record_property: Callable[[str, object], None]
) -> None:
    reports = [searches.protocol(c.name) for c in CONFIGURATIONS]
    states = sum(report.states for report in reports)
    record_property(
        "figures", f"the model: {len(reports)} configurations of the protocol, {states:,} states"
    )
    assert states >= _FEWEST_STATES
    assert min(report.states for report in reports) > 300
    assert max(len(c.clients) for c in CONFIGURATIONS) >= 4


def test_every_request_that_the_protocol_can_make_is_a_move_of_the_model(
    searches: Searches,
) -> None:
    reports = [searches.protocol(c.name) for c in CONFIGURATIONS]
    taken = frozenset[str]().union(*(report.request_names for report in reports))
    assert taken == REQUEST_NAMES | {PUSH, DESCRIBE, READ}
