"""The queue, step by step, on a table where no one else moves between two requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.store.context import Event, HandedOver
from tests.support import LOCK, TABLE, FakeClock, acquire, heartbeat, owner, release, store_over
from tests.support.faulty_table import FaultyTable
from tests.support.operations import Operations
from tests.support.workflows import FakeWorkflows

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-1"
OTHER_EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:billing:run-2"


@dataclass
class Queue:
    """A store whose pushes and hand-offs are recorded, and whose world a test decides about."""

    client: FaultyTable
    clock: FakeClock
    workflows: FakeWorkflows = field(default_factory=FakeWorkflows)
    events: list[Event] = field(default_factory=list)
    store: Operations = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.store_with(self.workflows)

    def store_with(self, workflows: FakeWorkflows) -> Operations:
        observe = self.events.append
        return store_over(self.client, self.clock, workflows=workflows, observe=observe)

    def wait(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
        """Asks as a workflow does: with a task token, and the time of its first try."""
        fields = {"task_token": f"token-{name}", "waits": True, **fields}
        answer = self.store.acquire(acquire(name, **fields))
        self.clock.advance(1)
        return answer

    def poll(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - same
        return self.store.acquire(acquire(name, waits=True, **fields))

    def waiters(self) -> list[str]:
        items = self.client.inner.scan(TableName=TABLE)["Items"]
        rows = [item for item in items if item["sk"]["S"].startswith("WAITER#")]
        rows.sort(key=lambda item: item["sk"]["S"])
        return [item["owner_name"]["S"] for item in rows]

    def state(self) -> dict[str, Any]:
        key = {"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}}
        item: dict[str, Any] = self.client.inner.get_item(TableName=TABLE, Key=key)["Item"]
        return item

    def hand_offs(self) -> list[HandedOver]:
        return [event for event in self.events if isinstance(event, HandedOver)]

    def woken(self) -> list[str]:
        return [token.removeprefix("token-") for token, _ in self.workflows.woken]


@pytest.fixture
def queue(dynamodb: DynamoDBClient, clock: FakeClock) -> Queue:
    return Queue(FaultyTable(dynamodb), clock)


def test_a_busy_lock_queues_who_is_willing_to_wait(queue: Queue) -> None:
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    answer = queue.wait("ben")
    assert isinstance(answer, Queued)
    assert (answer.position, answer.entered_at_ms) == (1, entered_at_ms)
    assert [h.owner_name for h in answer.holders] == ["anna"]
    assert queue.waiters() == ["ben"]


def test_release_hands_the_lock_to_the_oldest_waiter_and_tells_it(queue: Queue) -> None:
    first = queue.wait("anna")
    queue.wait("ben", lease_ms=5_000)
    queue.wait("carl")
    released = queue.store.release(release("anna"))
    assert isinstance(first, Grant)
    assert isinstance(released, Released)
    assert queue.workflows.woken == [
        (
            "token-ben",
            Grant(
                lock_name=LOCK,
                owner_id=owner("ben"),
                fencing_token=first.fencing_token + 1,
                lease_ms=5_000,
                acquired_at_ms=queue.clock.now_ms,
                expires_at_ms=queue.clock.now_ms + 6_500,
            ),
        )
    ]
    assert queue.waiters() == ["carl"]
    assert [h.waited_ms for h in queue.hand_offs()] == [2_000]


def test_the_pushed_grant_is_what_the_table_says(queue: Queue) -> None:
    queue.wait("anna")
    queue.wait("ben")
    queue.store.release(release("anna"))
    again = queue.store.acquire(acquire("ben"))
    assert isinstance(again, Grant)
    pushed = queue.workflows.woken[0][1]
    assert (again.fencing_token, again.expires_at_ms) == (
        pushed.fencing_token,
        pushed.expires_at_ms,
    )


def test_grants_come_in_the_order_of_queueing(queue: Queue) -> None:
    names = [f"waiter-{i}" for i in range(12)]
    queue.wait("anna")
    for name in names:
        queue.wait(name)
    for departing in ["anna", *names]:
        queue.store.release(release(departing))
    assert queue.woken() == names
    assert isinstance(queue.store.acquire(acquire("newcomer")), Grant)


def test_a_newcomer_never_overtakes_waiters(queue: Queue) -> None:
    queue.wait("anna", limit=2)
    queue.wait("ben", limit=1)
    answer = queue.store.acquire(acquire("newcomer", limit=2))
    # A permit is free for a limit of 2, but ben came first and his limit of 1 does not allow it.
    assert isinstance(answer, Refusal)


def test_the_last_release_opens_the_lock_again(queue: Queue) -> None:
    queue.wait("anna")
    queue.wait("ben")
    queue.store.release(release("anna"))
    queue.store.release(release("ben"))
    assert "contended" not in queue.state()
    queue.client.calls.clear()
    assert isinstance(queue.store.acquire(acquire("carl")), Grant)
    assert isinstance(queue.store.release(release("carl")), Released)
    assert queue.client.calls == ["update_item", "update_item"]


@pytest.mark.parametrize("waiting", [1, 2, 9])
def test_a_hand_off_is_three_requests_however_many_wait(queue: Queue, waiting: int) -> None:
    queue.wait("anna")
    for i in range(waiting):
        queue.wait(f"waiter-{i}")
    queue.client.calls.clear()
    queue.store.release(release("anna"))
    assert queue.client.calls == ["update_item", "query", "transact_write_items"]


def test_joining_the_queue_is_four_requests(queue: Queue) -> None:
    queue.wait("anna")
    queue.client.calls.clear()
    queue.wait("ben")
    assert queue.client.calls == ["update_item", "query", "transact_write_items", "update_item"]


def test_a_repeated_enqueue_keeps_the_place_and_takes_the_new_token(queue: Queue) -> None:
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    queue.wait("carl")
    again = queue.wait("ben", ticket=entered_at_ms, task_token="token-second")
    assert isinstance(again, Queued)
    assert again.entered_at_ms == entered_at_ms
    queue.store.release(release("anna"))
    assert queue.woken() == ["second"]


def test_a_lost_push_is_healed_by_the_waiters_own_next_acquire(queue: Queue) -> None:
    queue.workflows.wakes = Delivery.UNKNOWN
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    queue.store.release(release("anna"))
    answer = queue.wait("ben", ticket=entered_at_ms)
    assert isinstance(answer, Grant)
    assert answer.repeated
    assert queue.waiters() == []


def test_a_dead_waiter_at_the_head_is_passed_over_at_once(queue: Queue) -> None:
    def wakes(task_token: str, _grant: Grant) -> Delivery:
        return Delivery.GONE if "dead" in task_token else Delivery.DELIVERED

    queue.workflows.wakes, queue.workflows.runs = wakes, Liveness.OVER
    queue.wait("anna")
    queue.wait("dead-1", execution_arn=EXECUTION)
    queue.wait("dead-2", execution_arn=OTHER_EXECUTION)
    queue.wait("ben")
    queue.store.release(release("anna"))
    assert queue.woken() == ["dead-1", "dead-2", "ben"]
    assert queue.state()["held"] == {"N": "1"}
    assert isinstance(queue.store.release(release("ben")), Released)
    assert queue.state()["held"] == {"N": "0"}


def test_a_waiter_between_two_fallback_polls_keeps_the_lock_it_was_handed(queue: Queue) -> None:
    queue.workflows.wakes, queue.workflows.runs = Delivery.GONE, Liveness.RUNNING
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben", execution_arn=EXECUTION)
    queue.wait("carl")
    queue.store.release(release("anna"))
    assert isinstance(queue.wait("ben", ticket=entered_at_ms), Grant)


def test_giving_up_leaves_the_queue_and_bars_a_delayed_acquire(queue: Queue) -> None:
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    answer = queue.store.release(release("ben", ticket=entered_at_ms))
    assert isinstance(answer, Released)
    assert answer.left_queue
    late = queue.wait("ben", ticket=entered_at_ms)
    assert isinstance(late, Refusal)
    assert late.reason is RefusalReason.ALREADY_RELEASED
    queue.store.release(release("anna"))
    assert queue.workflows.woken == []
    assert isinstance(queue.store.acquire(acquire("carl")), Grant)


def test_giving_up_releases_a_grant_that_came_in_between(queue: Queue) -> None:
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    queue.wait("carl")
    queue.store.release(release("anna"))
    assert isinstance(queue.store.release(release("ben", ticket=entered_at_ms)), Released)
    assert queue.woken() == ["ben", "carl"]


def test_giving_up_what_was_never_asked_for_changes_no_holder(queue: Queue) -> None:
    queue.wait("anna")
    for _ in range(2):
        answer = queue.store.release(release("ben", ticket=1))
        assert answer == Released(lock_name=LOCK, owner_id=owner("ben"), held_ms=None)
    assert queue.state()["held"] == {"N": "1"}


def test_an_expired_holder_of_a_contended_lock_gives_way_to_the_oldest_waiter(
    queue: Queue,
) -> None:
    queue.wait("anna", lease_ms=1_000)
    queue.wait("ben")
    queue.clock.advance(10)
    answer = queue.wait("carl")
    assert queue.woken() == ["ben"]
    assert isinstance(answer, Queued)
    assert isinstance(queue.store.release(release("anna")), NotHeld)


def test_a_waiters_fallback_poll_evicts_an_expired_holder_for_itself(queue: Queue) -> None:
    queue.wait("anna", lease_ms=1_000)
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    queue.clock.advance(10)
    assert isinstance(queue.wait("ben", ticket=entered_at_ms), Grant)
    assert queue.workflows.woken == []


def test_a_heartbeat_between_sight_and_eviction_wins(queue: Queue) -> None:
    queue.wait("anna", lease_ms=1_000)
    queue.wait("ben")
    queue.clock.advance(10)

    def renew_meanwhile(_arn: str) -> Execution:
        queue.store.heartbeat(heartbeat("anna"))
        return Execution(Liveness.OVER)

    queue.store = queue.store_with(FakeWorkflows(runs=renew_meanwhile))
    answer = queue.wait("carl")
    assert isinstance(answer, Queued)


def test_a_raised_limit_is_used_up_by_the_waiters_first(queue: Queue) -> None:
    queue.wait("anna", limit=1)
    queue.wait("ben", limit=1)
    for i in range(4):
        queue.wait(f"waiter-{i}", limit=3)
    queue.store.release(release("anna"))
    assert queue.woken() == ["ben"], "while ben holds, his limit of 1 holds"
    queue.store.release(release("ben"))
    assert queue.woken() == ["ben", "waiter-0", "waiter-1", "waiter-2"]
    assert isinstance(queue.store.acquire(acquire("newcomer", limit=3)), Refusal)
    assert queue.state()["held"] == {"N": "3"}


def test_who_waited_for_a_lower_limit_is_served_when_that_waiter_gives_up(queue: Queue) -> None:
    queue.wait("anna", limit=2)
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben", limit=1)
    queue.wait("carl", limit=2)
    queue.store.release(release("ben", ticket=entered_at_ms))
    assert queue.woken() == ["carl"]


def test_after_a_lowered_limit_holders_leave_without_successor(queue: Queue) -> None:
    for i in range(3):
        queue.wait(f"holder-{i}", limit=3)
    queue.wait("ben", limit=1)
    queue.store.release(release("holder-0"))
    queue.store.release(release("holder-1"))
    assert queue.workflows.woken == []
    queue.store.release(release("holder-2"))
    assert queue.woken() == ["ben"]
    assert queue.state()["held"] == {"N": "1"}


def test_a_polling_caller_keeps_its_place_while_it_polls(queue: Queue) -> None:
    queue.store.acquire(acquire("anna"))
    first = queue.poll("ben")
    assert isinstance(first, Queued)
    queue.clock.advance(3)
    queue.poll("carl")
    for _ in range(10):
        queue.clock.advance(first.retry_after_seconds)
        queue.store.heartbeat(heartbeat("anna"))
        again = queue.poll("ben", ticket=first.entered_at_ms)
        assert isinstance(again, Queued)
        assert again.position == 1
    queue.store.release(release("anna"))
    granted = queue.poll("ben", ticket=first.entered_at_ms)
    assert isinstance(granted, Grant)


def test_a_polling_caller_that_stopped_is_passed_over(queue: Queue) -> None:
    queue.store.acquire(acquire("anna", lease_ms=600_000))
    queue.poll("gone")
    queue.clock.advance(1)
    queue.poll("ben")
    queue.clock.advance(60)
    queue.poll("ben", ticket=queue.clock.now_ms - 60_000)
    queue.store.release(release("anna"))
    assert [h.owner_name for h in queue.hand_offs()] == ["ben"]
    assert queue.waiters() == []


def test_a_permit_freed_by_a_cancel_does_not_stay_free(queue: Queue) -> None:
    queue.wait("anna")
    entered_at_ms = queue.clock.now_ms
    queue.wait("ben")
    queue.store.release(release("ben", ticket=entered_at_ms))
    queue.store.release(release("anna"))
    assert "contended" not in queue.state()
