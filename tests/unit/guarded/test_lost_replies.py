"""The transaction happened and its reply got lost: the same call again tells so, and that is all.

The embedded DynamoDB keeps request tokens for ten minutes, as AWS documents it.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlock.errors import LockLost, LockStoreUnavailable, TransactionRefused
from fairlock.guarded.guarded_writes import GuardedWrites
from tests.support import FakeClock
from tests.support.faults import FaultyClient, RepeatingClient, lost_reply
from tests.unit.guarded.bench import Bench, deposit, open_account

QUEUED = pytest.mark.parametrize("queued", [False, True])
MINUTE = 60


def losing(bench: Bench, *calls: int) -> FaultyClient:
    return FaultyClient(bench.inner, lost_reply(), when="after", calls=calls)


def unknown(writes: GuardedWrites, items: list[Any], *, release: bool = False) -> None:
    with pytest.raises(LockStoreUnavailable):
        writes.transact_write(items, release=release)


def test_a_repeat_of_a_lost_reply_writes_nothing_twice(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    assert bench.balance("x") == 1
    writes.transact_write([deposit("x")])
    assert bench.balance("x") == 1


def test_the_same_writes_after_that_are_a_new_transaction(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    writes.transact_write([deposit("x")])
    writes.transact_write([deposit("x")])
    assert bench.balance("x") == 2


def test_a_repeat_under_a_new_request_token_writes_twice(bench: Bench) -> None:
    """The negative control: another object knows nothing of the call before."""
    grant = bench.granted("anna")
    unknown(bench.through(losing(bench, 1)).writes(grant), [deposit("x")])
    bench.writes(grant).transact_write([deposit("x")])
    assert bench.balance("x") == 2


def test_other_writes_are_no_repeat(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    writes.transact_write([deposit("y")])
    writes.transact_write([deposit("x")])
    assert (bench.balance("x"), bench.balance("y")) == (1, 1)


def test_a_repeat_is_told_of_its_commit_although_the_lock_is_gone_since(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    bench.release("anna")
    bench.granted("ben")
    writes.transact_write([deposit("x")])
    with pytest.raises(LockLost):
        writes.transact_write([deposit("x")])
    assert bench.balance("x") == 1


@QUEUED
def test_a_repeated_release_is_told_of_its_commit_and_not_of_a_lost_lock(
    bench: Bench, *, queued: bool
) -> None:
    writes = bench.through(losing(bench, 2 if queued else 1)).writes(bench.granted("anna"))
    if queued:
        bench.waits("ben")
    unknown(writes, [deposit("x")], release=True)
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"] if queued else [])


@QUEUED
def test_it_is_told_so_also_when_the_lock_has_changed_hands_again(
    bench: Bench, *, queued: bool
) -> None:
    writes = bench.through(losing(bench, 2 if queued else 1)).writes(bench.granted("anna"))
    if queued:
        bench.waits("ben")
    unknown(writes, [deposit("x")], release=True)
    bench.granted("ben")
    bench.release("ben")
    bench.granted("carl")
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["carl"])


@QUEUED
def test_a_release_without_memory_calls_its_own_commit_a_lost_lock(
    bench: Bench, *, queued: bool
) -> None:
    """The negative control."""
    grant = bench.granted("anna")
    if queued:
        bench.waits("ben")
    failing = bench.through(losing(bench, 2 if queued else 1))
    unknown(failing.writes(grant), [deposit("x")], release=True)
    with pytest.raises(LockLost):
        bench.writes(grant).transact_write([deposit("x")], release=True)


@QUEUED
def test_a_request_that_never_arrived_is_made_up_for_by_the_repeat(
    bench: Bench, *, queued: bool
) -> None:
    faulty = FaultyClient(bench.inner, lost_reply(), when="before", calls=[2 if queued else 1])
    writes = bench.through(faulty).writes(bench.granted("anna"))
    if queued:
        bench.waits("ben")
    unknown(writes, [deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (None, ["anna"])
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"] if queued else [])


def test_a_request_that_never_arrived_and_a_queue_that_moved_since(bench: Bench) -> None:
    faulty = FaultyClient(bench.inner, lost_reply(), when="before", calls=[1])
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")], release=True)
    bench.waits("ben")  # the transaction of before cannot happen any more; its successor does
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"])


def test_a_request_that_never_arrived_and_a_lock_that_got_lost_since(bench: Bench) -> None:
    faulty = FaultyClient(bench.inner, lost_reply(), when="before", calls=[1])
    writes = bench.through(faulty).writes(bench.granted("anna", lease_ms=1_000))
    unknown(writes, [deposit("x")], release=True)
    bench.clock.advance(10)
    bench.granted("ben")
    with pytest.raises(LockLost):
        writes.transact_write([deposit("x")], release=True)
    assert bench.balance("x") is None


def test_several_replies_in_a_row_may_get_lost(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1, 2, 3)).writes(bench.granted("anna"))
    for _ in range(3):
        unknown(writes, [deposit("x")], release=True)
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, [])


def test_a_repeat_that_is_refused_may_be_corrected(bench: Bench) -> None:
    faulty = FaultyClient(bench.inner, lost_reply(), when="before", calls=[1])
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [open_account("x")])
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    with pytest.raises(TransactionRefused):
        writes.transact_write([open_account("x")])
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, [])


def test_items_that_the_caller_changes_in_place_are_other_items(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    item: Any = deposit("x")
    unknown(writes, [item])
    item["Update"]["ExpressionAttributeValues"][":amount"] = {"N": "10"}
    writes.transact_write([item])
    assert bench.balance("x") == 11


@pytest.mark.parametrize("late", ["wall", "monotonic"])
def test_after_nine_minutes_by_either_clock_nobody_can_tell_and_nothing_is_sent(
    bench: Bench, clock: FakeClock, late: str
) -> None:
    faulty = losing(bench, 1)
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    if late == "wall":
        clock.skew_ms += 10 * MINUTE * 1000
    else:
        clock.advance(10 * MINUTE)
        clock.skew_ms -= 10 * MINUTE * 1000
    for _ in range(2):
        with pytest.raises(LockStoreUnavailable, match="read the items to find out"):
            writes.transact_write([deposit("x")])
    assert (faulty.count, bench.balance("x")) == (1, 1)


def test_the_nine_minutes_are_counted_from_the_first_time_it_was_sent(
    bench: Bench, clock: FakeClock
) -> None:
    faulty = losing(bench, 1, 2)
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    clock.advance(8 * MINUTE)
    unknown(writes, [deposit("x")])
    clock.advance(2 * MINUTE)
    unknown(writes, [deposit("x")])
    assert (faulty.count, bench.balance("x")) == (2, 1)


@QUEUED
def test_a_transaction_that_botocore_sends_twice_happens_once(
    bench: Bench, *, queued: bool
) -> None:
    writes = bench.through(RepeatingClient(bench.inner)).writes(bench.granted("anna"))
    if queued:
        bench.waits("ben")
    writes.transact_write([deposit("x")], release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"] if queued else [])
