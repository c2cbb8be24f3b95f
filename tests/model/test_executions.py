"""Executions that end, are reaped and redriven, and renew their locks: every order of requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.executions.scenes import KEEP_ALIVE, REAPING, SCENES, STALLED_CALL
from tests.model.request_names import (
    CLAIM_REQUEST_NAMES,
    DESCRIBE,
    END_HEARTBEAT,
    PUSH,
    READ,
)
from tests.model.searches import Searches

_FEWEST_ORDERS = 2_000


@pytest.mark.parametrize("name", [scene.name for scene in SCENES])
def test_all_invariants_hold_in_every_order(searches: Searches, name: str) -> None:
    report = searches.protocol(name)
    assert (report.broken, report.trace) == (None, ())


def test_the_searches_see_enough_orders(
    searches: Searches, record_property: Callable[[str, object], None]
) -> None:
    reaping = [searches.protocol(scene.name) for scene in REAPING]
    keep_alive = [searches.protocol(scene.name) for scene in KEEP_ALIVE]
    states = sum(report.states for report in (*reaping, *keep_alive))
    record_property(
        "figures",
        f"the model: {len(SCENES)} scenes in which executions end, {states:,} states; an "
        f"acquire under way and two reap passes in {reaping[0].orders:,} orders",
    )
    assert min(report.orders for report in reaping if report.whole) >= _FEWEST_ORDERS
    assert sum(report.orders for report in keep_alive) >= _FEWEST_ORDERS


def test_every_request_about_claims_is_a_move(searches: Searches) -> None:
    taken = frozenset[str]().union(*(searches.protocol(s.name).request_names for s in SCENES))
    assert taken >= CLAIM_REQUEST_NAMES | {PUSH, DESCRIBE, END_HEARTBEAT, READ}


@pytest.mark.xfail(
    strict=True,
    reason="a release frees the lock before it closes its claim; a call that stalled until then "
    "finds a claim that stands, and its grant ends with its lease and its execution",
)
def test_a_call_that_stalled_until_its_acquisition_was_over_is_never_granted(
    searches: Searches,
) -> None:
    assert searches.protocol(STALLED_CALL.name).broken is None
