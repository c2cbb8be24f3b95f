"""Newest only: the mark of a grant that no one learned of is put back, and no other mark is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fairlock.protocol.model import (
    BY_TIME,
    TELLING_MS,
    Grant,
)
from fairlock.protocol.outcomes import Refusal, RefusalReason
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing.manual_clock import START_MS
from tests.support import acquire
from tests.support.faulty_table import meanwhile
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat

TWO = {"limit": 2}
POLLS = {"waits": True, "poll_interval_ms": 5_000}
RELEASE_OF_PASS = 3
"""The requests of a pass before it: the claims, and a fence."""
Scene = Callable[[Bench], None]


def two_hold_version_3(bench: Bench) -> None:
    for name in ("h1", "h2"):
        bench.grant(name, only_newest=3, **TWO)


def another_of_the_same_version_is_handed_the_lock(bench: Bench) -> None:
    two_hold_version_3(bench)
    bench.wait("dead", execution_arn=OTHER_RUN, only_newest=5, **TWO)
    bench.wait("ben", only_newest=5, **TWO)
    bench.end(OTHER_RUN)
    bench.gone("dead", then=lambda: bench.release("h2"))
    bench.release("h1")


def another_finds_its_grant(bench: Bench, *, version: int, lives: bool = False) -> None:
    two_hold_version_3(bench)
    ben: dict[str, Any] = {**POLLS, **TWO, "only_newest": version}
    bench.clock.advance(1)
    bench.ask("ben", **ben)
    bench.release("h1")
    bench.wait("dead", execution_arn=OTHER_RUN, only_newest=5, **TWO)
    if not lives:
        bench.end(OTHER_RUN)
    bench.gone("dead", then=lambda: bench.grant("ben", **ben))
    bench.release("h2")


SCENES: dict[str, tuple[Scene, int]] = {
    "handed the lock": (another_of_the_same_version_is_handed_the_lock, 4),
    "finds its grant": (partial(another_finds_its_grant, version=5), 4),
    "finds its grant of a lower version": (partial(another_finds_its_grant, version=4), 3),
}
"""With a version that is older than that of the owner who works."""


@pytest.mark.parametrize(("scene", "older"), SCENES.values(), ids=SCENES)
def test_no_older_version_runs_beside_an_owner_that_works(
    bench: Bench, scene: Scene, older: int
) -> None:
    scene(bench)
    assert bench.holders() == ["ben"]
    bench.clock.advance(5)
    refused = bench.refuse("older", only_newest=older, **TWO)
    assert refused.reason is RefusalReason.SUPERSEDED


def test_what_another_has_set_stays_if_an_owner_that_lives_was_not_told(bench: Bench) -> None:
    another_finds_its_grant(bench, version=5, lives=True)
    assert bench.holders() == ["ben", "dead"]
    assert bench.state.newest == 5


@pytest.mark.parametrize("seconds", [0, TELLING_MS // 1000], ids=["quick", "slow"])
def test_older_waiters_stay_if_the_queue_is_read_again_after_a_push_to_no_one(
    bench: Bench, seconds: int
) -> None:
    """The newest leaves a permit free, so its hand-off looks for the next waiter."""
    for version in (1, 2):
        bench.wait(f"v{version}", only_newest=version)
    bench.wait("v3", execution_arn=OTHER_RUN, only_newest=3, **TWO)
    bench.gone("v3", then=lambda: bench.clock.advance(seconds))
    bench.release("v1", execution_arn=RUN)
    assert (bench.holders(), bench.waiters(), bench.state.newest) == (["v3"], ["v2"], 1)
    assert all(isinstance(answer, Grant) for _, answer in bench.workflows.woken)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "meanwhile",
    [lambda bench: bench.release("h2"), lambda bench: bench.set_ceiling(2)],
    ids=["another is granted", "an operator sets a limit"],
)
def test_no_older_version_is_refused_for_the_sake_of_one_that_may_be_dead(
    bench: Bench, meanwhile: Scene, *, before: bool
) -> None:
    """No one answers for version 5; version 4 waits by then, or asks in between."""
    for name in ("h1", "h2"):
        bench.grant(name, **TWO)
    bench.wait("dead", execution_arn=OTHER_RUN, only_newest=5, **TWO)
    bench.wait("plain", **TWO)
    if before:
        bench.wait("v4", only_newest=4, **TWO)
    bench.end(OTHER_RUN)

    def act() -> None:
        meanwhile(bench)
        if not before:
            bench.wait("v4", only_newest=4, **TWO)

    bench.gone("dead", then=act)
    bench.release("h1")
    for name in ("h2", "plain"):
        bench.release(name, execution_arn=RUN)
    assert "v4" in bench.holders()


def test_while_the_newest_is_told_a_caller_that_does_not_wait_is_refused_at_once(
    bench: Bench,
) -> None:
    """A permit is free, but would not be granted to it, however often it asks."""
    for name in ("h1", "h2"):
        bench.ask(name, **TWO)
    bench.wait("v5", only_newest=5, **TWO)
    client, store = bench.counting()
    found: list[object] = []

    def act() -> None:
        bench.release("h2")
        found.append(store.acquire(acquire("v4", only_newest=4, **TWO)))

    bench.gone("v5", then=act)
    bench.release("h1")
    assert isinstance(found[0], Refusal)
    assert (found[0].reason, client.calls) == (RefusalReason.HELD, ["update_item"])


def test_the_lower_versions_are_told_if_the_newest_is_released_by_force_just_after_its_grant(
    bench: Bench,
) -> None:
    """Else they would sleep beside a free lock until they ask by themselves."""
    bench.wait("v1", only_newest=1)
    bench.wait("v3", only_newest=3)
    bench.release("v1", execution_arn=RUN)
    bench.wait("v2", only_newest=2)
    bench.force(bench.state.holders[0])
    assert (bench.holders(), bench.waiters()) == ([], [])
    assert bench.pushed == ["v3", "v2"]


@pytest.mark.parametrize("version", [4, BY_TIME])
def test_a_redriven_holder_beside_a_newer_version_renews_before_the_reaper_frees_it(
    bench: Bench, version: int
) -> None:
    bench.ask("anna", only_newest=version, execution_arn=RUN, **TWO)
    newer = START_MS + 1 if version == BY_TIME else 5
    bench.wait("ben", only_newest=newer, execution_arn=OTHER_RUN, **TWO)
    bench.end()

    def beat() -> None:
        bench.redrive()
        assert bench.beat("anna", only_newest=version, limit=2) is KeepAliveOutcome.RENEWED

    bench.reap(client=meanwhile(RELEASE_OF_PASS, beat))
    assert bench.holders() == ["anna", "ben"]
    assert bench.state.newest == newer


@pytest.mark.parametrize("place", [True, False])
def test_a_heartbeat_by_time_costs_no_more_and_takes_the_lock_again_by_its_place(
    bench: Bench, *, place: bool
) -> None:
    if place:
        bench.wait("anna", only_newest=BY_TIME)
    else:
        bench.ask("anna", only_newest=BY_TIME, execution_arn=RUN)
    client, store = bench.counting()
    beat = workflow_heartbeat("anna", only_newest=BY_TIME)
    assert store.keep_alive(beat) is KeepAliveOutcome.RENEWED
    assert client.calls == ["update_item"] * 2
    bench.come_back()
    outcome = bench.store().keep_alive(beat)
    # Without a place its version is not known any more, and a newer one may have run.
    assert outcome is (KeepAliveOutcome.REACQUIRED if place else KeepAliveOutcome.LOST)
