"""Every search of the model, and the mutants that searches have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.durable.scenes import DURABLE_MUTANTS, DURABLE_SCENES, DurableScene
from tests.model.executions.scenes import KEEP_ALIVE, REAPING, SCENES, STALLED_CALL
from tests.model.replay import (
    CLAIM_REQUEST_NAMES,
    DESCRIBE,
    END_HEARTBEAT,
    PUSH,
    READ,
    REQUEST_NAMES,
)
from tests.model.searches import (
    FIRST_DURABLE_STATES,
    LONGEST_SECONDS,
    MUTANTS,
    Searches,
    run,
    run_searches,
)

pytestmark = pytest.mark.timeout(LONGEST_SECONDS)
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def searches() -> Iterator[Searches]:
    """All searches begin at the first test that asks for one."""
    with run_searches() as searches:
        yield searches


# Every state that a few clients can bring about; and every order of requests when executions end,
# are reaped and redriven, and renew their locks. Through the real code, request by request.


@pytest.mark.parametrize("name", [search.name for search in (*CONFIGURATIONS, *SCENES)])
def test_all_invariants_hold_in_every_state(searches: Searches, name: str) -> None:
    report = searches.of(name)
    assert (report.broken, report.trace) == (None, ())


def test_the_searches_see_enough_states(searches: Searches, record_property: Record) -> None:
    reports = [searches.of(c.name) for c in CONFIGURATIONS]
    states = sum(report.states for report in reports)
    record_property(
        "figures", f"the model: {len(reports)} configurations of the protocol, {states:,} states"
    )
    assert states >= 400_000
    assert min(report.states for report in reports) > 300
    assert max(len(c.clients) for c in CONFIGURATIONS) >= 4


def test_the_searches_see_enough_orders(searches: Searches, record_property: Record) -> None:
    reaping = [searches.of(scene.name) for scene in REAPING]
    keep_alive = [searches.of(scene.name) for scene in KEEP_ALIVE]
    states = sum(report.states for report in (*reaping, *keep_alive))
    record_property(
        "figures",
        f"the model: {len(SCENES)} scenes in which executions end, {states:,} states; an "
        f"acquire under way and two reap passes in {reaping[0].orders:,} orders",
    )
    assert min(report.orders for report in reaping if report.whole) >= 2_000
    assert sum(report.orders for report in keep_alive) >= 2_000


def test_every_request_that_the_protocol_can_make_is_a_move_of_the_model(
    searches: Searches,
) -> None:
    made = [searches.of(c.name).request_names for c in CONFIGURATIONS]
    assert frozenset[str]().union(*made) == REQUEST_NAMES | {PUSH, DESCRIBE, READ}
    made = [searches.of(scene.name).request_names for scene in SCENES]
    about_claims = CLAIM_REQUEST_NAMES | {PUSH, DESCRIBE, END_HEARTBEAT, READ}
    assert frozenset[str]().union(*made) >= about_claims


@pytest.mark.xfail(
    strict=True,
    reason="a release frees the lock before it closes its claim; a call that stalled until then "
    "finds a claim that stands, and its grant ends with its lease and its execution",
)
def test_a_call_that_stalled_until_its_acquisition_was_over_is_never_granted(
    searches: Searches,
) -> None:
    assert searches.of(STALLED_CALL.name).broken is None


# A search that finds nothing proves nothing, unless it finds what is broken on purpose.


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_without_one_protection_is_found_broken(searches: Searches, name: str) -> None:
    report = searches.of(name)
    if not report.whole:
        pytest.skip(f"not within the first {report.states:,} states; `make model` visits all")
    assert report.broken is MUTANTS[name].breaks
    assert report.trace


@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name].patches])
def test_with_the_protection_the_same_search_finds_nothing(searches: Searches, name: str) -> None:
    assert searches.control(name).trace == ()


def test_without_a_second_reap_pass_a_late_acquire_holds_the_lock(searches: Searches) -> None:
    assert searches.of("there is no second reap pass").trace[-1] == "anna: acquire_permit"


# Durable executions: every order of operations, replays, deaths, lost pushes, ends of waits.


@pytest.mark.parametrize("scene", DURABLE_SCENES, ids=lambda scene: scene.name)
def test_all_invariants_of_durable_executions_hold_in_every_order(
    scene: DurableScene, record_property: Record
) -> None:
    report = run(scene, FIRST_DURABLE_STATES)
    record_property("figures", f"the model: {scene.name}: {report.states:,} states")
    assert (report.broken, report.trace) == (None, ())
    assert report.states >= 30


@pytest.mark.parametrize("name", DURABLE_MUTANTS)
def test_a_durable_execution_without_one_protection_is_found_broken(name: str) -> None:
    mutant = DURABLE_MUTANTS[name]
    report = run(mutant.narrow_search, FIRST_DURABLE_STATES, mutant.patches)
    assert report.broken is mutant.breaks
    assert report.trace
    assert run(mutant.narrow_search, FIRST_DURABLE_STATES).broken is None
