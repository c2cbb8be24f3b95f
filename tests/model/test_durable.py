"""Durable executions: every order of operations, replays, deaths, lost pushes, ends of waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.model.durable.invariants import Checker
from tests.model.durable.scene import DurableScene
from tests.model.durable.scenes import DURABLE_MUTANTS, DURABLE_SCENES
from tests.model.durable.world import DurableWorld
from tests.model.search import Report, Search

_FEWEST_STATES = 30


def searched(scene: DurableScene) -> Report:
    world = DurableWorld(scene)
    return Search(world, Checker(world, scene.invariants), scene.tell).run(scene.name)


@pytest.mark.parametrize("scene", DURABLE_SCENES, ids=lambda scene: scene.name)
def test_all_invariants_hold_in_every_order(
    scene: DurableScene, record_property: Callable[[str, object], None]
) -> None:
    report = searched(scene)
    record_property("figures", f"the model: {scene.name}: {report.states:,} states")
    assert (report.broken, report.trace) == (None, ())
    assert report.states >= _FEWEST_STATES


@pytest.mark.parametrize("name", DURABLE_MUTANTS)
def test_a_durable_execution_without_one_protection_is_found_broken(name: str) -> None:
    breaks, scene, patches = DURABLE_MUTANTS[name]
    narrow = replace(scene, invariants=frozenset({breaks}))
    with ExitStack() as stack:
        for place, attribute, replacement in patches:
            stack.enter_context(patch.object(place, attribute, replacement))
        report = searched(narrow)
    assert report.broken is breaks
    assert report.trace
    assert searched(narrow).broken is None
