"""Every search of the model, and the mutants that searches have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.durable.scene import DurableScene
from tests.model.durable.scenes import DURABLE_MUTANTS, DURABLE_SCENES, Checker
from tests.model.durable.world import DurableWorld
from tests.model.executions.scenes import KEEP_ALIVE, REAPING, SCENES, STALLED_CALL
from tests.model.replay import (
    CLAIM_REQUEST_NAMES,
    DESCRIBE,
    END_HEARTBEAT,
    PUSH,
    READ,
    REQUEST_NAMES,
)
from tests.model.search import (
    FIRST_DURABLE_STATES,
    LONGEST_SECONDS,
    MUTANTS,
    Report,
    Search,
    Searches,
    run_searches,
)

pytestmark = pytest.mark.timeout(LONGEST_SECONDS)


@pytest.fixture(scope="module")
def searches() -> Iterator[Searches]:
    """All searches begin at the first test that asks for one."""
    with run_searches() as searches:
        yield searches


# Every state that a few clients can bring about, through the real code, request by request.

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


# Durable executions: every order of operations, replays, deaths, lost pushes, ends of waits.

_FEWEST_STATES_OF_DURABLE = 30


def searched(scene: DurableScene) -> Report:
    world = DurableWorld(scene)
    checker = Checker(world, scene.invariants)
    return Search(world, checker, scene.tell, most_states=FIRST_DURABLE_STATES).run(scene.name)


@pytest.mark.parametrize("scene", DURABLE_SCENES, ids=lambda scene: scene.name)
def test_all_invariants_hold_in_every_order(
    scene: DurableScene, record_property: Callable[[str, object], None]
) -> None:
    report = searched(scene)
    record_property("figures", f"the model: {scene.name}: {report.states:,} states")
    assert (report.broken, report.trace) == (None, ())
    assert report.states >= _FEWEST_STATES_OF_DURABLE


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


# Executions that end, are reaped and redriven, and renew their locks: every order of requests.

_FEWEST_ORDERS = 2_000


@pytest.mark.parametrize("name", [scene.name for scene in SCENES])
def test_all_invariants_of_executions_hold_in_every_order(searches: Searches, name: str) -> None:
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


# A search that finds nothing proves nothing, unless it finds what is broken on purpose.


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_without_one_protection_is_found_broken(searches: Searches, name: str) -> None:
    report = searches.mutant(name)
    if not report.whole:
        pytest.skip(f"not within the first {report.states:,} states; `make model` visits all")
    assert report.broken is MUTANTS[name].breaks
    assert report.trace


@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name].patches])
def test_with_the_protection_the_same_search_finds_nothing(searches: Searches, name: str) -> None:
    assert searches.control(name).trace == ()


def test_without_a_second_reap_pass_a_late_acquire_holds_the_lock(searches: Searches) -> None:
    assert searches.mutant("there is no second reap pass").trace[-1] == "anna: acquire_permit"
