"""TTL never deletes a lock under the hands of a holder, however long ago a workflow used it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlock.protocol import grants, leaving
from fairlock.protocol.outcomes import Grant
from fairlock.protocol.schema import lock_key
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, TABLE, FakeClock, acquire, heartbeat, release
from tests.support.store_bench import RUN, Bench

DAY_SECONDS = 24 * 3600
LONG_AGO_DAYS = 399
SHORTEST_SECONDS = 48 * 3600


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    """A lock that a workflow has used, a year and a month ago."""
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("workflow", execution_arn=RUN))
    bench.store().release(release("workflow", execution_arn=RUN))
    clock.advance(LONG_AGO_DAYS * DAY_SECONDS)
    return bench


@pytest.fixture
def unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    """No one checks how long the item is retained."""
    monkeypatch.setattr(grants, "retained_long_enough", lambda *, long: ())  # noqa: ARG005 - as the real one
    never = lambda _state, *, now_ms: False  # noqa: ARG005, E731 - as the real one
    monkeypatch.setattr(leaving, "needs_longer_retention", never)
    monkeypatch.setattr(grants, "needs_longer_retention", never)


def seconds_to_live(bench: Bench) -> int:
    item: dict[str, Any] = bench.client.get_item(TableName=TABLE, Key=lock_key(LOCK))["Item"]
    return int(item["expiry_time"]["N"]) - bench.clock.now_ms // 1000


def claim(bench: Bench) -> None:
    assert isinstance(bench.store().acquire(acquire("anna")), Grant)


def renew_for_long(bench: Bench) -> None:
    """A leader, for instance: it became the holder in good time, and holds for months."""
    bench.clock.advance(-30 * DAY_SECONDS)
    claim(bench)
    for _ in range(60):
        bench.clock.advance(DAY_SECONDS)
        assert isinstance(bench.store().heartbeat(heartbeat("anna")), Grant)


def serve_waiter(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    claim(bench)
    bench.wait("ben", execution_arn=None, waiter_timeout_ms=2 * DAY_SECONDS * 1000)
    bench.clock.advance(2 * DAY_SECONDS - 1)
    bench.store().release(release("anna"))
    assert bench.holders() == ["ben"]


def take_over_permit(bench: Bench) -> None:
    bench.clock.advance(-2 * DAY_SECONDS)
    bench.store().acquire(acquire("gone"))
    bench.clock.advance(2 * DAY_SECONDS)
    claim(bench)


WAYS = [claim, renew_for_long, serve_waiter, take_over_permit]


@pytest.mark.parametrize("become_holder", WAYS)
def test_a_holder_has_two_days_until_ttl_may_delete_its_lock(
    bench: Bench, become_holder: Callable[[Bench], None]
) -> None:
    become_holder(bench)
    assert seconds_to_live(bench) > SHORTEST_SECONDS


@pytest.mark.parametrize("become_holder", WAYS)
@pytest.mark.usefixtures("unprotected")
def test_without_the_protection_its_lock_may_be_deleted(
    bench: Bench, become_holder: Callable[[Bench], None]
) -> None:
    become_holder(bench)
    assert seconds_to_live(bench) < SHORTEST_SECONDS


def test_it_costs_one_request_more_and_then_none(bench: Bench) -> None:
    client, store = bench.counting()
    store.acquire(acquire("anna"))
    assert client.calls == ["update_item"] * 2
    store.heartbeat(heartbeat("anna"))
    store.release(release("anna"))
    store.acquire(acquire("ben"))
    assert len(client.calls) == 5


def test_a_lock_that_no_workflow_has_used_is_kept_for_two_days_only(clock: FakeClock) -> None:
    bench = Bench(MemoryTable(), clock)
    claim(bench)
    assert seconds_to_live(bench) == SHORTEST_SECONDS
