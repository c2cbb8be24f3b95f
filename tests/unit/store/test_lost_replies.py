"""The write was done and its reply got lost: the repeat gives the answer that got lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ReadTimeoutError

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.protocol.waiters import mark_given_up
from fairlock.store.context import Evicted, HandedOver
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, TABLE, FakeClock, acquire, heartbeat, owner, release, store_over
from tests.support.faults import lost_reply
from tests.support.faulty_table import REQUESTS, FaultyTable, delay, fault, lose, meanwhile, repeat
from tests.support.store_bench import RUN, Bench, workflow_heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def test_an_acquire_whose_reply_was_lost_is_granted_again_under_the_same_token(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("anna"))
    entered_ms = clock.now_ms
    clock.advance(3)
    answer = store_over(dynamodb, clock).acquire(acquire("anna"))
    assert answer == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=entered_ms * 1000 + 1,
        lease_ms=60_000,
        acquired_at_ms=entered_ms,
        expires_at_ms=entered_ms + 61_500,
        repeated=True,
    )


def test_a_grant_whose_reply_was_lost_keeps_others_out(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("anna"))
    answer = store_over(dynamodb, clock).acquire(acquire("ben"))
    assert isinstance(answer, Refusal)
    assert [holder.owner_name for holder in answer.holders] == ["anna"]


def test_a_takeover_whose_reply_was_lost_is_granted_again_under_the_same_token(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    first = store.acquire(acquire("anna", lease_ms=1_000))
    assert isinstance(first, Grant)
    clock.advance(10)
    faulty = FaultyTable(dynamodb, lose(2))
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    answer = store.acquire(acquire("ben"))
    assert isinstance(answer, Grant)
    assert (answer.fencing_token, answer.repeated) == (first.fencing_token + 1, True)


def test_a_heartbeat_whose_reply_was_lost_is_no_lost_lock(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).heartbeat(heartbeat("anna"))
    clock.advance(1)
    assert store.heartbeat(heartbeat("anna")) == Grant(
        lock_name=LOCK,
        owner_id=owner("anna"),
        fencing_token=granted.fencing_token,
        lease_ms=60_000,
        acquired_at_ms=granted.acquired_at_ms,
        expires_at_ms=clock.now_ms + 61_500,
    )


def test_a_release_whose_reply_was_lost_is_released_again_until_another_owner_releases(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).release(release("anna"))
    repeated = Released(lock_name=LOCK, owner_id=owner("anna"), held_ms=None)
    assert store.release(release("anna")) == repeated
    store.acquire(acquire("ben"))
    assert store.release(release("anna")) == repeated
    store.release(release("ben"))
    assert store.release(release("anna")) == NotHeld(lock_name=LOCK, owner_id=owner("anna"))


def test_a_lost_refusal_is_refused_again(dynamodb: DynamoDBClient, clock: FakeClock) -> None:
    store = store_over(dynamodb, clock)
    store.acquire(acquire("anna"))
    faulty = FaultyTable(dynamodb, lose())
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    answer = store.acquire(acquire("ben"))
    assert isinstance(answer, Refusal)
    assert answer.reason is RefusalReason.HELD


def test_a_write_that_botocore_repeats_by_itself_is_answered_as_if_sent_once(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    once = store_over(dynamodb, clock)
    twice = store_over(FaultyTable(dynamodb, repeat()), clock)
    here, there = {"lock_name": "sent-once"}, {"lock_name": "sent-twice"}

    first = once.acquire(acquire("anna", **here))
    again = twice.acquire(acquire("anna", **there))
    assert isinstance(first, Grant)
    assert again == replace(first, lock_name="sent-twice", repeated=True)

    renewed = once.heartbeat(heartbeat("anna", **here))
    assert isinstance(renewed, Grant)
    assert twice.heartbeat(heartbeat("anna", **there)) == replace(renewed, lock_name="sent-twice")

    clock.advance(100)
    taken = once.acquire(acquire("ben", **here))
    assert isinstance(taken, Grant)
    taken_twice = twice.acquire(acquire("ben", **there))
    assert isinstance(taken_twice, Grant)
    assert taken_twice.fencing_token == taken.fencing_token

    assert isinstance(once.release(release("ben", **here)), Released)
    assert isinstance(twice.release(release("ben", **there)), Released)
    assert isinstance(twice.acquire(acquire("carl", **there)), Grant)


# What goes wrong around the queue: replies lost, calls sent twice, calls that land late.


class World(Bench):
    """A bench whose waiters belong to no execution."""

    def wait(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
        return super().wait(name, **{"execution_arn": None, **fields})

    def hand_offs(self) -> list[str]:
        return [e.owner_name for e in self.events if isinstance(e, HandedOver)]

    def state(self) -> dict[str, Any]:
        key = {"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}}
        item: dict[str, Any] = self.client.get_item(TableName=TABLE, Key=key)["Item"]
        return item

    def seconds_to_live(self) -> int:
        return int(self.state()["expiry_time"]["N"]) - self.clock.now_ms // 1000


@pytest.fixture
def world(dynamodb: DynamoDBClient, clock: FakeClock) -> World:
    return World(dynamodb, clock)


@pytest.mark.parametrize("limit", [1, 2])
def test_an_owner_that_entered_twice_is_served_once(world: World, limit: int) -> None:
    for i in range(limit):
        world.wait(f"holder-{i}", limit=limit)
    world.wait("ben", limit=limit)
    world.wait("ben", limit=limit)
    world.wait("carl", limit=limit)
    world.store().release(release("holder-0"))
    world.store().release(release("ben"))
    assert world.pushed == ["ben", "carl"]


def test_a_caller_whose_ticket_was_lost_keeps_its_first_place(world: World) -> None:
    world.wait("anna")
    first = world.store().acquire(acquire("ben", waits=True))
    world.clock.advance(1)
    again = world.store().acquire(acquire("ben", waits=True))
    assert isinstance(first, Queued)
    assert isinstance(again, Queued)
    assert (again.entered_at_ms, again.position) == (first.entered_at_ms, 1)


def test_a_departure_that_boto3_sends_twice_is_a_release(world: World) -> None:
    """Transactions carry a token by which AWS knows a repeat; a single write has none."""
    world.wait("anna")
    world.wait("ben", task_token=None)
    world.clock.advance(120)  # ben stops polling, so that anna leaves an empty queue
    # Requests of this release: release_permit, the query, ben removed, closing the queue.
    twice = FaultyTable(world.client, repeat(4, of=REQUESTS))
    assert isinstance(world.store(twice).release(release("anna")), Released)
    assert len(twice.calls) == 4
    assert world.state()["held"] == {"N": "0"}


@pytest.mark.parametrize("number", range(1, 6))
def test_an_own_acquire_that_lands_while_giving_up_gets_nothing(world: World, number: int) -> None:
    world.wait("anna")
    world.wait("ben")
    place = {"ticket": world.clock.now_ms}
    late = acquire("ben", waits=True, task_token="late", **place)
    between = FaultyTable(world.client, meanwhile(number + 1, lambda: world.store().acquire(late)))
    world.store(between).release(release("ben", **place))
    world.store().release(release("anna"))
    assert world.pushed == []
    assert isinstance(world.store().acquire(acquire("carl")), Grant)


def test_when_patience_ends_the_outcome_is_unknown_and_not_a_refusal(world: World) -> None:
    world.wait("anna", lease_ms=1_000)
    world.wait("ben")
    world.clock.advance(10)
    slow = FaultyTable(world.client, delay(6, world.clock, range(2, 5)))
    ben = acquire("ben", waits=True, ticket=world.clock.now_ms - 10_000)
    with pytest.raises(LockStoreUnavailable):
        world.store(slow).acquire(ben)
    assert isinstance(world.store().acquire(ben), Grant)


def test_many_dead_workflows_give_way_after_a_lowered_limit(world: World) -> None:
    for i in range(20):
        world.wait(f"dead-{i}", limit=20, lease_ms=1_000, execution_arn=RUN)
    world.clock.advance(60)
    world.end()
    answer = world.store().acquire(acquire("ben", limit=10))
    assert isinstance(answer, Grant)
    evicted = sum(event.holders for event in world.events if isinstance(event, Evicted))
    assert evicted + answer.taken_over == 11
    assert world.state()["held"] == {"N": "10"}


def test_free_permits_are_handed_over_until_they_or_the_waiters_are_used_up(world: World) -> None:
    world.wait("anna", limit=1)
    world.wait("narrow", limit=1)
    names = [f"wide-{i:02d}" for i in range(25)]
    for name in names:
        world.wait(name, limit=22)
    world.store().release(release("anna"))
    world.store().release(release("narrow"))
    assert world.hand_offs() == ["narrow", *names[:22]]
    assert world.state()["held"] == {"N": "22"}


@pytest.mark.parametrize("number", range(1, 7))
def test_a_wider_waiter_that_joins_in_the_moment_of_a_hand_off_is_next(
    world: World, number: int
) -> None:
    world.wait("anna", limit=2)
    world.wait("ben", limit=1)
    between = FaultyTable(
        world.client, meanwhile(number + 1, lambda: world.store().release(release("anna")))
    )
    world.clock.advance(1)
    carl = acquire("carl", limit=2, waits=True, task_token="carl")
    answer = world.store(between).acquire(carl)
    world.store().release(release("anna"))
    world.store().release(release("ben"))
    assert isinstance(answer, Grant) or "carl" in world.pushed


def test_ttl_never_takes_a_lock_out_of_the_hands_of_a_workflow(world: World) -> None:
    days_400 = 400 * 24 * 3600
    world.store().acquire(acquire("anna", limit=2, execution_arn=RUN))
    assert world.seconds_to_live() == days_400
    world.store().acquire(acquire("ben", limit=2))
    world.store().release(release("ben"))
    assert world.seconds_to_live() == days_400


def test_a_lock_handed_over_to_a_workflow_is_kept_as_long(world: World) -> None:
    world.wait("anna")
    world.wait("ben", execution_arn=RUN)
    world.store().release(release("anna"))
    assert world.seconds_to_live() == 400 * 24 * 3600


def test_a_lock_of_direct_callers_is_removed_two_days_after_its_last_write(world: World) -> None:
    world.store().acquire(acquire("anna"))
    world.clock.advance(3600)
    world.store().release(release("anna"))
    assert world.seconds_to_live() == 48 * 3600


@pytest.mark.parametrize("number", range(4))
def test_giving_up_may_be_repeated_whichever_reply_was_lost(world: World, number: int) -> None:
    world.wait("anna")
    world.wait("ben")
    give_up = release("ben", ticket=world.clock.now_ms)

    def lose() -> None:
        raise ReadTimeoutError(endpoint_url="local")

    with pytest.raises(LockStoreUnavailable):
        world.store(FaultyTable(world.client, meanwhile(number + 1, lose))).release(give_up)
    assert isinstance(world.store().release(give_up), Released)
    world.store().release(release("anna"))
    assert world.pushed == []


# A repeated release gives the first answer again, and a stranger's release changes no answer.

HOURS_OF_A_CLAIM_AND_MORE_SECONDS = 3_700
both_guards = pytest.mark.parametrize("keep_alive", [False, True])


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def after_others(bench: Bench, **fields: Any) -> Released | NotHeld:  # noqa: ANN401 - of a release
    """Anna, a workflow, has released; three others came and went; her release comes again."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    if fields.get("keep_alive"):
        bench.store().keep_alive(workflow_heartbeat("anna"))
    assert isinstance(bench.store().release(release("anna", execution_arn=RUN, **fields)), Released)
    for name in ("ben", "carl", "dora"):
        bench.clock.advance(1)
        bench.store().acquire(acquire(name))
        bench.store().release(release(name))
    return bench.store().release(release("anna", execution_arn=RUN, **fields))


@both_guards
def test_a_workflows_release_is_answered_as_before_no_matter_who_came_and_went_since(
    bench: Bench,
    *,
    keep_alive: bool,
) -> None:
    assert isinstance(after_others(bench, keep_alive=keep_alive), Released)


@both_guards
def test_without_the_mark_in_its_claim_the_repeat_would_count_as_a_loss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, keep_alive: bool
) -> None:
    monkeypatch.setattr("fairlock.store.release.gave_back_before", lambda _: False)
    assert isinstance(after_others(bench, keep_alive=keep_alive), NotHeld)


@both_guards
def test_a_workflow_that_lost_its_lock_is_told_so_by_every_repeat(
    bench: Bench, *, keep_alive: bool
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.end()
    bench.clock.advance(HOURS_OF_A_CLAIM_AND_MORE_SECONDS)
    assert isinstance(bench.store().acquire(acquire("ben")), Grant)
    lost = NotHeld(lock_name=LOCK, owner_id=owner("anna"))
    again = release("anna", execution_arn=RUN, keep_alive=keep_alive)
    assert [bench.store().release(again) for _ in range(2)] == [lost, lost]


def test_a_release_with_keep_alive_that_died_half_way_is_finished_by_its_repeat(
    bench: Bench,
) -> None:
    """It has marked its work as ended, and freed nothing."""
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    half = FaultyTable(bench.client, fault(lost_reply(), range(2, 99)))
    request = release("anna", execution_arn=RUN, keep_alive=True)
    with pytest.raises(LockStoreUnavailable):
        bench.store(half).release(request)
    assert isinstance(bench.store().release(request), Released)
    assert bench.holders() == []


def test_a_claim_that_kept_alive_is_done_once_its_lock_is_free_so_the_reaper_passes_over_it(
    bench: Bench,
) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    bench.store().release(release("anna", execution_arn=RUN, keep_alive=True))
    assert (bench.claims(), len(bench.claims(done=True))) == ([], 1)


def test_the_mark_of_a_workflows_release_costs_no_request(bench: Bench) -> None:
    bench.store().acquire(acquire("anna", execution_arn=RUN))
    client, store = bench.counting()
    store.release(release("anna", execution_arn=RUN))
    assert client.calls == ["update_item", "update_item"]


def stranger_after_anna(bench: Bench) -> None:
    """Anna releases; then a stranger releases what it never had, by a ticket that it made up."""
    bench.store().acquire(acquire("anna"))
    bench.store().release(release("anna"))
    bench.clock.advance(1)
    bench.store().release(release("stranger", waits=True, ticket=0))


def test_a_strangers_release_leaves_the_answer_to_a_repeat_alone(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().release(release("anna")), Released)


def test_a_strangers_release_opens_the_lock_to_no_late_acquire(bench: Bench) -> None:
    stranger_after_anna(bench)
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)


def test_if_it_left_the_mark_of_a_release_a_late_acquire_would_be_granted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_released(*arguments: object, **fields: object) -> object:
        update = mark_given_up(*arguments, **fields)  # type: ignore[arg-type]  # passed through
        names = {"#last_given_up": "last_released"}
        return type(update)(
            **{
                **{name: getattr(update, name) for name in update.__slots__},
                "names": {**update.names, **names},
            }
        )

    monkeypatch.setattr("fairlock.store.release.mark_given_up", as_released)
    stranger_after_anna(bench)
    assert isinstance(bench.store().acquire(acquire("anna")), Grant)


def test_who_gave_up_before_its_acquire_landed_is_refused_all_the_same(bench: Bench) -> None:
    bench.store().release(release("anna", waits=True))
    assert isinstance(bench.store().acquire(acquire("anna")), Refusal)
