"""A ceiling: a limit that an operator has set, above which no grant goes, and a pause."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol import admission, grants
from fairlock.protocol.outcomes import RefusalReason
from fairlock.protocol.schema import FOREVER_SECONDS, Part, number
from fairlock.store.context import CeilingChanged
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.testing import ManualClock
from tests.support import LOCK, acquire, heartbeat, release
from tests.support.faulty_table import (
    fault,
    lost_reply,
    meanwhile,
    repeat,
)
from tests.support.store_bench import RUN, Bench, ceiling

DAY_SECONDS = 24 * 3600


def expiry(bench: Bench) -> int:
    return int(bench.item()["expiry_time"]["N"])


def test_a_paused_lock_is_refused_with_who_paused_it_and_why_and_resumed_by_one_write(
    fresh_dynamodb: object, clock: ManualClock
) -> None:
    """On moto, so that the expressions are judged by other code; a lock never used before."""
    bench = Bench(fresh_dynamodb, clock)
    client, store = bench.counting()
    store.change_ceiling(ceiling(0))
    assert client.calls == ["get_item", "update_item"]
    refused = bench.refuse("anna")
    assert (refused.reason, refused.holders) == (RefusalReason.HELD, ())
    assert refused.ceiling is not None
    assert (refused.ceiling.requested_by, refused.ceiling.reason) == ("olga", "a test")
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert (lock.is_paused, lock.is_in_use, lock.holders) == (True, True, ())
    client, store = bench.counting()
    store.change_ceiling(ceiling(None))
    assert client.calls == ["get_item", "update_item"]
    bench.grant("anna")
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert lock.ceiling is None
    assert [type(event) for event in bench.events] == [CeilingChanged, CeilingChanged]


def test_the_first_token_after_a_pause_of_an_unused_lock_is_above_all_before(bench: Bench) -> None:
    bench.set_ceiling(0)
    bench.set_ceiling(None)
    assert bench.grant("anna").fencing_token > bench.clock.wall_ms() * 1000


@pytest.mark.parametrize("limit", [0, 3])
def test_below_a_ceiling_a_redriven_execution_that_holds_renews(bench: Bench, limit: int) -> None:
    """Its pass has died behind the fence, and a ceiling retains the item by itself."""
    bench.grant("anna", limit=5, execution_arn=RUN)
    bench.set_ceiling(limit)
    bench.end()
    with suppress(LockStoreUnavailable):
        bench.reap(client=fault(lost_reply(), 2))
    assert "fenced" in bench.claims()[0]
    bench.redrive()
    assert bench.beat("anna", limit=5) is KeepAliveOutcome.RENEWED
    assert expiry(bench) == FOREVER_SECONDS


def test_a_lowered_ceiling_grants_nothing_until_fewer_hold(bench: Bench) -> None:
    for name in ("anna", "ben", "carl"):
        bench.grant(name, limit=3)
    bench.set_ceiling(2)
    bench.wait("dora", limit=3)
    bench.release("anna")
    assert bench.holders() == ["ben", "carl"]
    bench.release("ben")
    assert bench.holders() == ["carl", "dora"]
    assert bench.pushed == ["dora"]


def test_resume_serves_all_who_wait_the_first_by_the_write_that_lifts_the_pause(
    fresh_dynamodb: object, clock: ManualClock
) -> None:
    bench = Bench(fresh_dynamodb, clock)
    bench.set_ceiling(0)
    for name in ("anna", "ben", "carl"):
        bench.wait(name, limit=2)
    assert bench.waiters() == ["anna", "ben", "carl"]
    client, store = bench.counting()
    store.change_ceiling(ceiling(None))
    assert client.calls[:3] == ["get_item", "query", "transact_write_items"]
    assert (bench.holders(), bench.waiters()) == (["anna", "ben"], ["carl"])
    assert bench.pushed == ["anna", "ben"]
    bench.release("anna")
    assert bench.holders() == ["ben", "carl"]


def test_a_redriven_workflow_does_not_take_a_paused_lock_again(bench: Bench) -> None:
    bench.ask("anna", execution_arn=RUN)
    bench.bury()
    bench.set_ceiling(0)
    bench.redrive()
    bench.beat("anna", redrives=1)
    assert bench.holders() == []
    bench.set_ceiling(None)
    bench.beat("anna", redrives=1)
    assert bench.holders() == ["anna"]


def test_a_hand_off_that_is_under_way_is_refused_once_a_pause_is_answered(bench: Bench) -> None:
    """A departing holder has read the queue. Only the fencing token tells it of the pause."""
    bench.grant("other")
    bench.wait("anna")
    bench.release("other", over=meanwhile(3, lambda: bench.set_ceiling(0)))
    assert bench.holders() == []


def test_ttl_spares_a_lock_with_a_ceiling_whatever_is_written_meanwhile(bench: Bench) -> None:
    """By workflows, whose writes retain an item for 400 days."""
    run = {"execution_arn": RUN, "limit": 3}
    writes: list[Callable[[], object]] = [
        lambda: bench.set_ceiling(2),
        lambda: bench.grant("anna", **run),
        lambda: bench.grant("ben", **run),
        lambda: bench.wait("carl", limit=3),
        lambda: bench.renew("anna"),
        lambda: bench.release("anna"),
        *(partial(bench.set_ceiling, limit) for limit in (1, 2, 3)),
    ]
    for write in writes:
        write()
        assert expiry(bench) == FOREVER_SECONDS
    assert bench.holders() == ["ben", "carl"]
    bench.set_ceiling(None)
    left = expiry(bench) - bench.clock.wall_ms() // 1000
    assert left == 400 * DAY_SECONDS


def test_resume_that_hands_over_lets_ttl_have_the_item_again(bench: Bench) -> None:
    bench.set_ceiling(0)
    bench.wait("anna")
    bench.set_ceiling(None)
    assert bench.holders() == ["anna"]
    assert expiry(bench) < FOREVER_SECONDS


@pytest.mark.parametrize("number", [0, 1, 2])
def test_resume_serves_all_though_a_holder_leaves_meanwhile(bench: Bench, number: int) -> None:
    """It leaves below a pause, so it serves no one."""
    bench.grant("anna", limit=2)
    bench.set_ceiling(0)
    for name in ("ben", "carl"):
        bench.wait(name, limit=2)
    leaves = meanwhile(number + 1, lambda: bench.release("anna"))
    bench.store(leaves).change_ceiling(ceiling(None))
    assert bench.holders() == ["ben", "carl"]


def test_who_joins_while_a_ceiling_is_raised_comes_in(bench: Bench) -> None:
    bench.set_ceiling(1)
    bench.grant("anna", limit=2)
    joins = meanwhile(2, lambda: bench.wait("ben", limit=2))
    bench.store(joins).change_ceiling(ceiling(2))
    assert (bench.holders(), bench.waiters()) == (["anna", "ben"], [])


def test_the_later_of_two_operators_wins(bench: Bench) -> None:
    bench.set_ceiling(3)
    other = meanwhile(2, lambda: bench.set_ceiling(0, "paul"))
    bench.store(other).change_ceiling(ceiling(5))
    found = bench.state.ceiling
    assert found is not None
    assert (found.limit, found.requested_by) == (5, "olga")


@pytest.mark.parametrize("waiting", [False, True])
def test_a_change_whose_first_reply_was_lost_is_made_once(bench: Bench, *, waiting: bool) -> None:
    bench.set_ceiling(0)
    if waiting:
        bench.wait("anna")
    changes = bench.state.last_ceiling
    assert changes is not None
    bench.store(repeat()).change_ceiling(ceiling(None))
    after = bench.state.last_ceiling
    assert after is not None
    assert (after.limit, after.change) == (None, changes.change + 1)


def test_a_lock_without_a_ceiling_pays_56_bytes_of_each_first_request_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size() -> int:
        update = grants.acquire_permit(acquire("anna"), sent_at_ms=0, now_ms=0)
        sent = [update.condition, update.change, dict(update.names), dict(update.values)]
        return len(json.dumps(sent, separators=(",", ":")))

    client, store = bench.counting()
    store.acquire(acquire("anna"))
    store.heartbeat(heartbeat("anna"))
    store.release(release("anna"))
    assert client.calls == ["update_item"] * 3
    assert not {"ceiling", "last_ceiling"} & bench.item().keys()
    with_it = size()
    without = lambda limit: Part(admission.PERMIT_FREE, {":limit": number(limit)})  # noqa: E731 - in a line
    monkeypatch.setattr(grants, "may_enter", without)
    assert with_it - size() == 56
