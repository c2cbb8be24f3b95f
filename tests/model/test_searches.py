"""Every search of the model, and the mutants that searches have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.model.contention.configurations import CONFIGURATIONS
from tests.model.durable.scenes import DURABLE_SCENES
from tests.model.executions.scenes import SCENES, STALLED_CALL
from tests.model.replay import (
    CLAIM_REQUEST_NAMES,
    DESCRIBE,
    END_HEARTBEAT,
    PUSH,
    READ,
    REQUEST_NAMES,
)
from tests.model.searches import (
    HOLDING,
    LONGEST_SECONDS,
    MUTANTS,
    Searches,
    control_of,
    run_searches,
)

pytestmark = [pytest.mark.cached, pytest.mark.timeout(LONGEST_SECONDS)]
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def searches() -> Iterator[Searches]:
    """All searches begin at the first test that asks for one."""
    with run_searches() as searches:
        yield searches


# Every state that a few clients can bring about; every order of requests when executions end, are
# reaped and redriven, and renew their locks; every order of operations, replays, deaths, lost
# pushes and ends of waits of durable executions. Through the real code, request by request.


@pytest.mark.parametrize("name", [scene.name for scene in HOLDING])
def test_all_invariants_hold_in_every_state(searches: Searches, name: str) -> None:
    report = searches.of(name)
    assert (report.broken, report.trace) == (None, ())


def test_the_searches_see_enough_states(searches: Searches, record_property: Record) -> None:
    for what, scenes, fewest, most in (
        ("configurations of the protocol", CONFIGURATIONS, 300, 400_000),
        ("scenes in which executions end", SCENES, 250, 100_000),
        ("scenes of durable executions", DURABLE_SCENES, 30, 5_000),
    ):
        states = [searches.of(scene.name).states for scene in scenes]
        record_property("figures", f"the model: {len(states)} {what}, {sum(states):,} states")
        assert min(states) >= fewest
        assert sum(states) >= most
    assert max(len(scene.actors) for scene in CONFIGURATIONS) >= 4


def test_every_request_that_the_protocol_can_make_is_a_move_of_the_model(
    searches: Searches,
) -> None:
    made = [searches.of(scene.name).request_names for scene in CONFIGURATIONS]
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
    assert searches.of(control_of(name)).trace == ()


def test_without_a_second_reap_pass_a_late_acquire_holds_the_lock(searches: Searches) -> None:
    assert searches.of("there is no second reap pass").trace[-1] == "anna: acquire_permit"
