"""Newest only: the mark of a grant that no one learned of is put back, and no other mark is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.aws.executions import Delivery
from fairlock.protocol import grants, leaving
from fairlock.protocol.outcomes import Grant, Refusal, RefusalReason
from fairlock.store import hand_off
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, FakeClock, acquire, release
from tests.support.store_bench import OTHER_RUN, RUN, Bench

TWO = {"limit": 2}
POLLS = {"waits": True, "poll_interval_ms": 5_000}
Scene = Callable[[Bench], None]


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def newest(bench: Bench) -> int | None:
    return bench.store().read_state(LOCK).newest


def while_it_is_told(bench: Bench, waiter: str, act: Callable[[], object]) -> None:
    """The push to this waiter reaches no one, and others act in the meantime."""

    def wake(task_token: str, _answer: object) -> Delivery:
        if task_token != waiter:
            return Delivery.DELIVERED
        act()
        return Delivery.GONE

    bench.workflows.wakes = wake


def two_hold_version_3(bench: Bench) -> None:
    for name in ("h1", "h2"):
        assert isinstance(bench.store().acquire(acquire(name, only_newest=3, **TWO)), Grant)


def another_of_the_same_version_is_handed_the_lock(bench: Bench) -> None:
    two_hold_version_3(bench)
    bench.wait("dead", execution_arn=OTHER_RUN, only_newest=5, **TWO)
    bench.wait("ben", only_newest=5, **TWO)
    bench.end(OTHER_RUN)
    while_it_is_told(bench, "dead", lambda: bench.store().release(release("h2")))
    bench.store().release(release("h1"))


def another_finds_its_grant(bench: Bench, version: int) -> None:
    two_hold_version_3(bench)
    ben: dict[str, Any] = {**POLLS, **TWO, "only_newest": version}
    bench.clock.advance(1)
    bench.store().acquire(acquire("ben", **ben))
    bench.store().release(release("h1"))
    bench.wait("dead", execution_arn=OTHER_RUN, only_newest=5, **TWO)
    bench.end(OTHER_RUN)
    found: list[object] = []
    asks = lambda: found.append(bench.store().acquire(acquire("ben", **ben)))  # noqa: E731 - a race in a line
    while_it_is_told(bench, "dead", asks)
    bench.store().release(release("h2"))
    assert isinstance(found[0], Grant)


def another_of_the_same_version_finds_its_grant(bench: Bench) -> None:
    another_finds_its_grant(bench, 5)


def another_of_a_lower_version_finds_its_grant(bench: Bench) -> None:
    another_finds_its_grant(bench, 4)


SCENES: dict[Scene, int] = {
    another_of_the_same_version_is_handed_the_lock: 4,
    another_of_the_same_version_finds_its_grant: 4,
    another_of_a_lower_version_finds_its_grant: 3,
}
"""With a version that is older than that of the owner who works."""


@pytest.mark.parametrize("scene", SCENES)
def test_no_older_version_runs_beside_an_owner_that_works(bench: Bench, scene: Scene) -> None:
    scene(bench)
    assert bench.holders() == ["ben"]
    bench.clock.advance(5)
    older = bench.store().acquire(acquire("older", only_newest=SCENES[scene], **TWO))
    assert isinstance(older, Refusal)
    assert older.reason is RefusalReason.SUPERSEDED


@pytest.mark.parametrize("scene", SCENES)
def test_if_the_last_mark_were_no_ones_an_older_version_would_run(
    bench: Bench, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    unconditioned = "attribute_exists(#newest_token) AND :seen_grant = :seen_grant"
    for module in (grants, leaving):
        monkeypatch.setattr(module, "MY_MARK", unconditioned)
    monkeypatch.setattr(hand_off, "if_it_stands", lambda departing, _state: departing)
    scene(bench)
    assert newest(bench) == 3


def test_older_waiters_stay_if_the_queue_is_read_again_after_a_push_to_no_one(
    bench: Bench,
) -> None:
    """The newest leaves a permit free, so its hand-off looks for the next waiter."""
    for version in (1, 2):
        bench.wait(f"v{version}", only_newest=version)
    bench.wait("v3", execution_arn=OTHER_RUN, only_newest=3, **TWO)
    while_it_is_told(bench, "v3", lambda: None)
    bench.store().release(release("v1", execution_arn=RUN))
    assert (bench.holders(), bench.waiters(), newest(bench)) == (["v3"], ["v2"], 1)
    assert all(isinstance(answer, Grant) for _, answer in bench.workflows.woken)
