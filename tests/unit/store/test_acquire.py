"""Acquire, on a table where no one else moves between two requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.executions import Liveness
from fairlock.errors import LockItemMalformed
from fairlock.protocol.model import ForceReleaseRequest, Grant
from fairlock.protocol.outcomes import (
    AlreadyHolder,
    Queued,
    Refusal,
    RefusalReason,
    Released,
    judge,
)
from fairlock.protocol.schema import lock_key
from fairlock.testing.fake_table import MemoryTable
from tests.support import (
    LOCK,
    START_MS,
    TABLE,
    FakeClock,
    Operations,
    acquire,
    heartbeat,
    owner,
    release,
    store_over,
)
from tests.support.faulty_table import Fault, FaultyTable
from tests.support.store_bench import Bench, FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"


def granted(answer: Grant | Queued | Refusal) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def refused(answer: Grant | Queued | Refusal) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def test_the_first_use_of_a_lock_grants_it(dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    answer = store_over(dynamodb, clock).acquire(acquire("anna", lease_ms=5_000))
    assert answer == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=START_MS * 1000 + 1,
        lease_ms=5_000,
        acquired_at_ms=START_MS,
        expires_at_ms=START_MS + 6_500,
    )


def test_a_held_lock_is_refused_and_the_holder_is_named(store: Operations) -> None:
    store.acquire(acquire("anna"))
    answer = refused(store.acquire(acquire("ben")))
    assert answer.reason is RefusalReason.HELD
    assert [h.owner_name for h in answer.holders] == ["anna"]
    assert answer.retry_after_seconds == 1


def test_a_repeated_acquire_returns_the_same_grant(store: Operations, clock: FakeClock) -> None:
    first = granted(store.acquire(acquire("anna")))
    clock.advance(1)
    again = granted(store.acquire(acquire("anna")))
    assert again.repeated
    assert (again.fencing_token, again.expires_at_ms) == (first.fencing_token, first.expires_at_ms)


def test_a_repeated_acquire_after_the_lease_renews_it_under_the_same_token(
    store: Operations, clock: FakeClock
) -> None:
    first = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    clock.advance(60)
    again = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    assert again.fencing_token == first.fencing_token
    assert again.expires_at_ms == clock.now_ms + 6_500


def test_a_delayed_duplicate_does_not_take_the_lock_again(store: Operations) -> None:
    store.acquire(acquire("anna"))
    store.release(release("anna"))
    assert refused(store.acquire(acquire("anna"))).reason is RefusalReason.ALREADY_RELEASED
    assert granted(store.acquire(acquire("ben")))


@pytest.mark.parametrize(("seconds", "free"), [(6.999, False), (7.001, True)])
def test_a_lease_is_over_for_others_only_after_the_clock_tolerance(
    store: Operations, clock: FakeClock, *, seconds: float, free: bool
) -> None:
    first = granted(store.acquire(acquire("anna", lease_ms=5_000)))
    clock.advance(seconds)
    answer = store.acquire(acquire("ben", lease_ms=1_000))
    if free:
        assert granted(answer).fencing_token == first.fencing_token + 1
        assert granted(answer).taken_over == 1
    else:
        assert refused(answer).reason is RefusalReason.HELD


def test_the_contenders_own_short_lease_does_not_judge_the_holder(
    store: Operations, clock: FakeClock
) -> None:
    store.acquire(acquire("anna", lease_ms=60_000))
    clock.advance(10)
    assert refused(store.acquire(acquire("ben", lease_ms=1_000)))


def test_a_holder_that_was_taken_over_is_told_so_by_heartbeat_and_release(
    store: Operations, clock: FakeClock
) -> None:
    store.acquire(acquire("anna", lease_ms=1_000))
    clock.advance(10)
    ben = granted(store.acquire(acquire("ben")))
    assert not hasattr(store.heartbeat(heartbeat("anna")), "fencing_token")
    assert not isinstance(store.release(release("anna")), Released)
    assert granted(store.acquire(acquire("ben"))).fencing_token == ben.fencing_token


def test_a_semaphore_grants_exactly_its_limit(store: Operations) -> None:
    answers = [store.acquire(acquire(f"owner-{i}", limit=3)) for i in range(5)]
    assert [isinstance(a, Grant) for a in answers] == [True, True, True, False, False]
    assert [h.owner_name for h in refused(answers[4]).holders] == ["owner-0", "owner-1", "owner-2"]


def test_lowering_the_limit_grants_nothing_until_fewer_are_held(store: Operations) -> None:
    for i in range(5):
        granted(store.acquire(acquire(f"owner-{i}", limit=5)))
    for i in range(3):
        assert refused(store.acquire(acquire("late", limit=3)))
        store.release(release(f"owner-{i}"))
    assert granted(store.acquire(acquire("late", limit=3)))


def test_after_a_lowered_limit_as_many_leases_must_be_over_as_permits_are_missing(
    store: Operations, clock: FakeClock
) -> None:
    store.acquire(acquire("short-1", limit=4, lease_ms=1_000))
    store.acquire(acquire("short-2", limit=4, lease_ms=2_000))
    store.acquire(acquire("long-1", limit=4))
    store.acquire(acquire("long-2", limit=4))
    clock.advance(3.5)
    assert refused(store.acquire(acquire("late", limit=3)))
    clock.advance(1)
    assert granted(store.acquire(acquire("late", limit=3))).taken_over == 2
    assert refused(store.acquire(acquire("later", limit=3)))


def test_tokens_rise_when_ttl_has_removed_the_item(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    before = granted(store.acquire(acquire("anna")))
    store.release(release("anna"))
    clock.advance(49 * 3600)
    dynamodb.delete_item(TableName="locks", Key={"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}})
    after = granted(store.acquire(acquire("ben")))
    assert after.fencing_token > before.fencing_token


def test_a_running_workflow_is_not_robbed_but_extended_once_a_lease(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    workflows = FakeWorkflows(runs=Liveness.RUNNING)
    store = store_over(dynamodb, clock, workflows=workflows)
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    answers = [refused(store.acquire(acquire(f"contender-{i}"))) for i in range(4)]
    assert [a.holders[0].revision for a in answers] == [2, 2, 2, 2]
    assert workflows.described == [EXECUTION]


def test_the_lock_of_a_workflow_that_is_over_is_taken(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock, workflows=FakeWorkflows(runs=Liveness.OVER))
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    assert granted(store.acquire(acquire("ben"))).taken_over == 1


def test_a_workflow_of_which_no_one_knows_keeps_its_lock(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock, workflows=FakeWorkflows(runs=Liveness.UNKNOWN))
    store.acquire(acquire("anna", lease_ms=5_000, execution_arn=EXECUTION))
    clock.advance(8)
    answer = refused(store.acquire(acquire("ben")))
    assert answer.liveness_unknown == 1
    assert [holder.owner_name for holder in store.read_state(LOCK).holders] == ["anna"]


def test_every_operation_is_one_request_and_a_takeover_two(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    client = FaultyTable(dynamodb)
    store = store_over(client, clock)

    def requests_of(operation: object) -> int:
        assert operation
        count = len(client.calls)
        client.calls.clear()
        return count

    assert requests_of(store.acquire(acquire("anna", lease_ms=1_000))) == 1
    assert requests_of(store.acquire(acquire("anna", lease_ms=1_000))) == 1
    assert requests_of(store.acquire(acquire("ben"))) == 1
    assert requests_of(store.heartbeat(heartbeat("anna", lease_ms=1_000))) == 1
    assert requests_of(store.heartbeat(heartbeat("anna"))) == 2, "its lease is not the usual one"
    clock.advance(10)
    assert requests_of(store.acquire(acquire("ben"))) == 2
    assert requests_of(store.release(release("ben"))) == 1
    assert requests_of(store.release(release("ben"))) == 1
    assert requests_of(store.heartbeat(heartbeat("ben"))) == 1
    assert requests_of(store.acquire(acquire("carl"))) == 1


# The fencing token that a caller is told is the one that the lock's item has.
#
# A grant computes it in the item, and its sender computes it again from what the token was before.
# `make second-engine` asks DynamoDB Local, too.

Scene = Callable[[Operations, "DynamoDBClient", FakeClock], None]


def never_used(_store: Operations, _dynamodb: DynamoDBClient, _clock: FakeClock) -> None:
    """No one has held the lock."""


def used(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    for name in ("anna", "ben", "carl"):
        store.acquire(acquire(name))
        store.release(release(name))
        clock.advance(1)


def with_other_holders(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    for name in ("anna", "ben"):
        store.acquire(acquire(name, limit=5))
        clock.advance(1)


def with_another_limit(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    """The first attempt fails, the second one goes by what was seen."""
    store.acquire(acquire("anna", limit=7))
    clock.advance(1)


def released_by_force(store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    """The same owner_id is granted the lock again."""
    first = store.acquire(acquire("dora", limit=5))
    assert isinstance(first, Grant)
    store.force_release(
        ForceReleaseRequest(
            lock_name=LOCK, fencing_token=first.fencing_token, requested_by="ben", reason="test"
        )
    )
    clock.advance(1)


def with_holders_to_take_over(
    store: Operations, _dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    for number in range(5):
        store.acquire(acquire(f"late-{number}", limit=5, lease_ms=1_000))
    clock.advance(10)


def removed_by_ttl(store: Operations, dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    used(store, dynamodb, clock)
    clock.advance(49 * 3600)
    dynamodb.delete_item(TableName=TABLE, Key=lock_key(LOCK))


def waited_for_before_it_was_used(
    store: Operations, dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """The item has no token: a waiter has come and gone since TTL removed it."""
    removed_by_ttl(store, dynamodb, clock)
    item = {**lock_key(LOCK), "wait_seq": {"N": "3"}, "expiry_time": {"N": "1"}}
    dynamodb.put_item(TableName=TABLE, Item=item)


SCENES = [
    never_used,
    used,
    with_other_holders,
    with_another_limit,
    released_by_force,
    with_holders_to_take_over,
    removed_by_ttl,
    waited_for_before_it_was_used,
]


def told_and_stored(dynamodb: DynamoDBClient, scene: Scene) -> tuple[int, int]:
    """The token of a grant, and what a second call with the same owner_id reads in the item."""
    clock = FakeClock()
    store = store_over(dynamodb, clock)
    scene(store, dynamodb, clock)
    first = store.acquire(acquire("dora", limit=5))
    repeated = store.acquire(acquire("dora", limit=5))
    assert isinstance(first, Grant)
    assert isinstance(repeated, Grant)
    assert repeated.repeated
    times = first.acquired_at_ms, first.expires_at_ms, first.lease_ms
    assert times == (repeated.acquired_at_ms, repeated.expires_at_ms, repeated.lease_ms)
    assert store.read_state(LOCK).fencing_token == repeated.fencing_token
    return first.fencing_token, repeated.fencing_token


@pytest.mark.parametrize("scene", SCENES)
def test_the_token_that_a_caller_is_told_is_the_stored_one(
    dynamodb: DynamoDBClient, scene: Scene
) -> None:
    told, stored = told_and_stored(dynamodb, scene)
    assert told == stored


def test_an_engine_that_does_not_answer_would_be_noticed() -> None:
    at_the_seventh = Fault(at=7, tells=lambda _: {})  # Three have acquired and released before.
    silent: Any = FaultyTable(MemoryTable(), at_the_seventh)
    told, stored = told_and_stored(silent, used)
    assert told != stored


def test_a_token_that_is_no_number_is_a_malformed_item() -> None:
    odd = Fault(tells=lambda _: {"Attributes": {"fencing_token": {"S": "7"}}})
    with pytest.raises(LockItemMalformed):
        store_over(FaultyTable(MemoryTable(), odd), FakeClock()).acquire(acquire("anna"))


def tokens_around_a_deletion(clock: FakeClock, *, seconds: float) -> tuple[int, int]:
    """The item began by a clock that is 5 minutes ahead; the second token is of the next item."""
    table = MemoryTable()
    clock.skew_ms = 300_000
    old = store_over(table, clock).acquire(acquire("anna"))
    table.items.clear()
    clock.skew_ms = 0
    clock.advance(seconds)
    new = store_over(table, clock).acquire(acquire("ben"))
    assert isinstance(old, Grant)
    assert isinstance(new, Grant)
    return old.fencing_token, new.fencing_token


def test_five_minutes_after_an_item_was_deleted_by_hand_its_next_token_is_larger(
    clock: FakeClock,
) -> None:
    old, new = tokens_around_a_deletion(clock, seconds=301)
    assert new > old


def test_at_once_it_is_smaller_if_the_clock_that_began_the_old_item_was_ahead(
    clock: FakeClock,
) -> None:
    old, new = tokens_around_a_deletion(clock, seconds=0)
    assert new < old


# A grant that is told again may be older than it seems: it is renewed if half of it is over.

LEASE_MS = 60_000
SLOW_MS = 90_000


def told(bench: Bench) -> Grant:
    """Ben asks again, and hears of what he was handed by another caller whose clock is slow."""
    place = {"waits": True, "poll_interval_ms": 5_000}
    bench.store().acquire(acquire("anna", lease_ms=10 * LEASE_MS))
    bench.store().acquire(acquire("ben", **place))
    bench.clock.skew_ms = -SLOW_MS
    bench.store().release(release("anna"))
    bench.clock.skew_ms = 0
    bench.clock.advance(5)
    answer = bench.store().acquire(acquire("ben", **place))
    assert isinstance(answer, Grant)
    return answer


def test_the_end_that_a_slow_clock_has_written_is_corrected_before_anybody_relies_on_it(
    bench: Bench,
) -> None:
    assert told(bench).expires_at_ms == bench.clock.now_ms + LEASE_MS + 1_500


def test_without_that_the_lease_would_be_over_for_others_already(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_fresh(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
        verdict = judge(*args, **kwargs)
        return replace(verdict, is_fresh=True) if isinstance(verdict, AlreadyHolder) else verdict

    monkeypatch.setattr("fairlock.store.acquire.judge", all_fresh)
    assert told(bench).expires_at_ms < bench.clock.now_ms


def test_a_grant_that_is_fresh_costs_nothing_to_tell_again(bench: Bench) -> None:
    client, store = bench.counting()
    first = store.acquire(acquire("anna"))
    bench.clock.advance(LEASE_MS / 2_000 - 1)
    again = store.acquire(acquire("anna"))
    assert isinstance(first, Grant)
    assert again == replace(first, repeated=True)
    assert client.calls == ["update_item"] * 2
