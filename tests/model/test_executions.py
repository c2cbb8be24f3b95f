"""Executions that end, are reaped, redriven, keep their locks alive: every order of requests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model.conftest import Searches
from tests.model.executions.mutants import ONE_LOOK, SCENE_MUTANTS
from tests.model.executions.scenes import KEEPING, REAPING, SCENES
from tests.model.explore import explore
from tests.model.request_names import DESCRIBE, END_BEAT, PUSH, READ, STEP_NAMES_OF_CLAIMS

_FEWEST_ORDERS = 2_000


@pytest.mark.parametrize("name", [scene.name for scene in SCENES])
def test_all_promises_hold_in_every_order(searches: Searches, name: str) -> None:
    found = searches.scene(name)
    assert (found.broken, found.trace) == (None, ())


def test_the_searches_see_enough_orders(
    searches: Searches, record_property: Callable[[str, object], None]
) -> None:
    reaping = [searches.scene(scene.name) for scene in REAPING]
    keeping = [searches.scene(scene.name) for scene in KEEPING]
    states = sum(found.states for found in (*reaping, *keeping))
    record_property(
        "figures",
        f"the model: {len(SCENES)} scenes in which executions end, {states:,} states; an "
        f"acquire under way and two looks in {reaping[0].orders:,} orders",
    )
    assert min(found.orders for found in reaping) >= _FEWEST_ORDERS
    assert sum(found.orders for found in keeping) >= _FEWEST_ORDERS


def test_every_request_about_claims_is_a_step(searches: Searches) -> None:
    taken = frozenset[str]().union(*(searches.scene(scene.name).names for scene in SCENES))
    assert taken >= STEP_NAMES_OF_CLAIMS | {PUSH, DESCRIBE, END_BEAT, READ}


def test_without_a_second_look_a_late_acquire_keeps_the_lock() -> None:
    found = explore(ONE_LOOK.looked_at)
    assert found.broken is ONE_LOOK.breaks
    assert found.trace[-1] == "anna: acquire_permit"


@pytest.mark.parametrize("name", SCENE_MUTANTS)
def test_without_one_protection_a_promise_is_broken(searches: Searches, name: str) -> None:
    weak, control = searches.scene_mutant(name)
    assert (weak.broken, control.broken) == (SCENE_MUTANTS[name].breaks, None)
