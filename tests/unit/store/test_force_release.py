"""Release by force: the grant that was seen, or nothing; the next waiter gets the lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlock.aws.executions import Execution, Liveness
from fairlock.protocol import leaving
from fairlock.protocol.leaving import removal
from fairlock.protocol.model import ForceReleaseRequest, Grant, LockState
from fairlock.protocol.outcomes import NotHeld, Refusal, RefusalReason, Released
from fairlock.protocol.schema import Part
from fairlock.store.context import HandedOver, ReleasedByForce
from fairlock.store.keep_alive import KeepAliveOutcome
from tests.support import LOCK, FakeClock, acquire, heartbeat, owner, release
from tests.support.faulty_table import FaultyTable, meanwhile
from tests.support.store_bench import RUN, Bench, workflow_heartbeat

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


def granted(answer: object) -> Grant:
    assert isinstance(answer, Grant)
    return answer


def force(fencing_token: int, **fields: Any) -> ForceReleaseRequest:  # noqa: ANN401 - fields of the request
    return ForceReleaseRequest(
        **{
            "lock_name": LOCK,
            "fencing_token": fencing_token,
            "requested_by": "olga",
            "reason": "stuck since 3 a.m.",
            **fields,
        }
    )


def state(bench: Bench) -> LockState:
    return bench.store().read_state(LOCK)


def test_a_stuck_holder_is_taken_out_with_two_requests_and_logged_with_who_and_why(
    fresh_dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """On moto, so that the expressions are judged by other code."""
    bench = Bench(fresh_dynamodb, clock)
    grant = bench.grant("anna")
    clock.advance(7)
    client, store = bench.counting()
    assert isinstance(store.force_release(force(grant.fencing_token)), Released)
    assert client.calls == ["get_item", "update_item"]
    assert bench.events == [
        ReleasedByForce(
            lock_name=LOCK,
            fencing_token=grant.fencing_token,
            owner_name="anna",
            execution_arn=None,
            held_ms=7_000,
            requested_by="olga",
            reason="stuck since 3 a.m.",
        )
    ]
    assert (state(bench).held, state(bench).holders) == (0, ())
    lock = bench.store().describe(LOCK)
    assert lock is not None
    assert lock.last_forced_release is not None
    assert lock.last_forced_release.reason == "stuck since 3 a.m."
    assert bench.grant("ben").fencing_token == grant.fencing_token + 1


def test_the_former_holder_is_told_that_it_holds_nothing(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.store().force_release(force(grant.fencing_token))
    for now_held_by in ("nobody", "ben"):
        if now_held_by == "ben":
            bench.store().acquire(acquire("ben"))
        assert isinstance(bench.store().heartbeat(heartbeat("anna")), NotHeld)
        assert isinstance(bench.store().release(release("anna")), NotHeld)
    assert bench.holders() == ["ben"]


def test_the_mark_of_the_owner_who_released_last_stays(bench: Bench) -> None:
    """So a late copy of that owner's acquire is refused, as before."""
    bench.store().acquire(acquire("anna"))
    bench.store().release(release("anna"))
    grant = bench.grant("ben")
    bench.store().force_release(force(grant.fencing_token))
    late = bench.store().acquire(acquire("anna"))
    assert isinstance(late, Refusal)
    assert late.reason is RefusalReason.ALREADY_RELEASED


def test_the_oldest_waiter_gets_the_lock_in_the_same_transaction(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.wait("ben")
    bench.wait("carl")
    client, store = bench.counting()
    assert isinstance(store.force_release(force(grant.fencing_token)), Released)
    assert client.calls == ["get_item", "query", "transact_write_items"]
    assert (bench.holders(), bench.pushed, bench.waiters()) == (["ben"], ["ben"], ["carl"])
    assert [type(event) for event in bench.events] == [HandedOver, ReleasedByForce]
    [ben] = state(bench).holders
    assert ben.fencing_token == grant.fencing_token + 1


def test_one_holder_of_a_semaphore_is_taken_out_and_the_others_stay(bench: Bench) -> None:
    grants = [bench.grant(n, limit=3) for n in ("anna", "ben", "carl")]
    bench.store().force_release(force(grants[1].fencing_token))
    assert (bench.holders(), state(bench).held) == (["anna", "carl"], 2)


def test_without_the_mark_a_repeat_could_not_tell_its_own_doing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of what `tests/contracts/test_faults.py` says of releases by force."""

    def unmarked(departing: leaving.DepartingHolder | None, *, left_at_ms: int) -> list[Part]:
        [found] = removal(departing, left_at_ms=left_at_ms)
        return [replace(found, sets="")]

    monkeypatch.setattr(leaving, "removal", unmarked)
    grant = bench.grant("anna")
    assert isinstance(bench.store().force_release(force(grant.fencing_token)), Released)
    assert bench.store().force_release(force(grant.fencing_token)) is None


def pass_on(bench: Bench) -> None:
    """The holder that was seen leaves, and another comes."""
    bench.store().release(release("anna"))
    bench.store().acquire(acquire("dora"))


def grant_anew(bench: Bench) -> None:
    """The same acquisition is evicted and granted again: another grant, under the same owner_id."""
    bench.clock.advance(63)
    assert bench.grant("dora").taken_over == 1
    bench.store().release(release("dora"))
    bench.store().acquire(acquire("anna"))


@pytest.mark.parametrize("changes", [pass_on, grant_anew], ids=lambda change: change.__name__)
@pytest.mark.parametrize("number", [0, 1])
def test_a_holder_that_changed_meanwhile_stays_and_nothing_is_written(
    bench: Bench, changes: Callable[[Bench], None], number: int
) -> None:
    """Before the read, and between the read and the write."""
    grant = bench.grant("anna")
    after: list[dict[Any, Any]] = []

    def change() -> None:
        changes(bench)
        after.append(dict(bench.client.items))

    between = FaultyTable(bench.client, meanwhile(number + 1, change))
    assert bench.store(between).force_release(force(grant.fencing_token)) is None
    assert [dict(bench.client.items)] == after
    assert len(bench.holders()) == 1


def test_by_the_owner_alone_a_later_grant_would_be_taken_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""

    def by_owner(holder: leaving.DepartingHolder | None, *, left_at_ms: int) -> list[Part]:
        [found] = removal(holder, left_at_ms=left_at_ms)
        return [replace(found, condition="attribute_exists(#departing)")]

    monkeypatch.setattr(leaving, "removal", by_owner)
    grant = bench.grant("anna")
    between = FaultyTable(bench.client, meanwhile(2, lambda: grant_anew(bench)))
    assert isinstance(bench.store(between).force_release(force(grant.fencing_token)), Released)
    assert bench.holders() == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_waiter_that_joins_meanwhile_gets_the_lock(bench: Bench, number: int) -> None:
    grant = bench.grant("anna")
    if number == 2:
        bench.wait("first", waiter_timeout_ms=1)
    between = FaultyTable(bench.client, meanwhile(number + 1, lambda: bench.wait("ben")))
    assert isinstance(bench.store(between).force_release(force(grant.fencing_token)), Released)
    assert len(bench.holders()) == 1
    assert bench.holders()[0] in {"first", "ben"}


def test_a_heartbeat_in_between_does_not_prevent_it(bench: Bench) -> None:
    """It is there to free a holder that lives."""
    grant = bench.grant("anna")
    between = FaultyTable(
        bench.client, meanwhile(2, lambda: bench.store().heartbeat(heartbeat("anna")))
    )
    assert isinstance(bench.store(between).force_release(force(grant.fencing_token)), Released)
    assert bench.holders() == []


class TestWorkflow:
    """What a workflow finds whose lock was released by force."""

    @pytest.fixture
    def grant(self, bench: Bench) -> Grant:
        return granted(bench.wait("anna"))

    def test_its_heartbeat_stops_the_work(self, bench: Bench, grant: Grant) -> None:
        assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.RENEWED
        bench.store().force_release(force(grant.fencing_token))
        assert bench.store().keep_alive(workflow_heartbeat("anna")) is KeepAliveOutcome.LOST
        assert bench.holders() == []

    @pytest.mark.parametrize("kept_alive", [False, True])
    def test_its_release_is_refused_and_ends_its_claim(
        self, bench: Bench, grant: Grant, *, kept_alive: bool
    ) -> None:
        if kept_alive:
            bench.store().keep_alive(workflow_heartbeat("anna"))
        bench.wait("ben")
        bench.store().force_release(force(grant.fencing_token))
        assert len(bench.claims()) == 2
        late = release("anna", execution_arn=RUN, keep_alive=kept_alive)
        assert isinstance(bench.store().release(late), NotHeld)
        assert bench.holders() == ["ben"]
        assert [claim for claim in bench.claims() if owner("anna") in claim["sk"]["S"]] == []
        stays = [each for each in bench.claims(done=True) if owner("anna") in each["sk"]["S"]]
        assert len(stays) >= int(kept_alive), "a claim that is done stays, for late heartbeats"

    def test_the_reaper_finds_nothing_to_free_and_takes_no_other_lock(
        self, bench: Bench, grant: Grant
    ) -> None:
        bench.store().force_release(force(grant.fencing_token))
        bench.store().acquire(acquire("ben"))
        bench.end()
        assert bench.reap().holders == 0
        assert bench.holders() == ["ben"]

    def test_a_waiter_whose_workflow_is_over_is_passed_over(
        self, bench: Bench, grant: Grant
    ) -> None:
        bench.store().acquire(acquire("ben", waits=True))
        bench.executions[RUN] = Execution(Liveness.OVER)
        bench.store().force_release(force(grant.fencing_token))
        assert bench.holders() == ["ben"]
