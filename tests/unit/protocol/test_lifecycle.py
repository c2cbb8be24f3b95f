"""Lifecycle events, told by the images of what the real store writes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlock.errors import LockItemMalformed
from fairlock.protocol.items import read_state
from fairlock.protocol.model import LockState
from fairlock.testing import ManualClock
from fairlock.wire.lifecycle import LifecycleEvent, StreamRecords, events_of, lifecycle_json
from tests.support import LOCK, owner
from tests.support.memory_tables import StreamedTable
from tests.support.store_bench import OTHER_RUN, RUN, Bench

LEASE_SECONDS = 60


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    return Bench(StreamedTable(clock), clock)


def told(bench: Bench) -> list[LifecycleEvent]:
    """The events of the writes since the last call."""
    records = StreamRecords(bench.client.take(), no_lock)
    return [event for place in range(len(records.records)) for event in records.events(place)]


def no_lock(_name: str) -> LockState:
    return LockState()


def kinds(bench: Bench) -> list[tuple[str, str]]:
    return [
        (event.kind.value, event.holder.owner_name if event.holder else "") for event in told(bench)
    ]


def test_a_grant_and_a_release_are_told_and_a_renewal_and_a_refusal_are_not(bench: Bench) -> None:
    for name in ("anna", "anna", "ben"):  # A repeat of the same acquisition, and a contender.
        bench.ask(name)
    bench.renew("anna")
    assert kinds(bench) == [("Lock granted", "anna")]
    for _ in range(2):
        bench.release("anna")
    assert kinds(bench) == [("Lock released", "anna")]


def test_a_hand_off_is_a_release_and_a_grant_and_a_place_in_the_queue_is_nothing(
    bench: Bench,
) -> None:
    bench.ask("anna")
    told(bench)
    bench.wait("ben", execution_arn=RUN)
    assert kinds(bench) == []
    bench.release("anna")
    assert kinds(bench) == [("Lock released", "anna"), ("Lock granted", "ben")]


@pytest.mark.parametrize("waits", [False, True])
def test_a_holder_whose_lease_is_over_is_taken_over_by_a_successor(
    bench: Bench, *, waits: bool
) -> None:
    bench.ask("anna")
    bench.clock.advance(LEASE_SECONDS + 3)
    told(bench)
    granted = bench.grant("ben", waits=waits)
    taken_over, new = told(bench)
    assert (taken_over.kind, new.kind) == ("Lock taken over", "Lock granted")
    assert taken_over.successor == granted.fencing_token
    assert new.holder is not None
    assert new.holder.fencing_token == granted.fencing_token


def test_a_holder_that_loses_its_place_to_no_one_has_lost(bench: Bench) -> None:
    """The waiter to whom its place would go has died, too."""
    bench.ask("anna")
    bench.ask("ben", waits=True, waiter_timeout_ms=1_000)
    bench.clock.advance(LEASE_SECONDS + 3)
    told(bench)
    bench.ask("zita")
    assert kinds(bench) == [("Lock lost", "anna"), ("Lock granted", "zita")]


def test_a_holder_whose_item_is_deleted_has_lost(bench: Bench) -> None:
    bench.ask("anna")
    [record] = bench.client.take()
    [event] = events_of(record["dynamodb"]["NewImage"], {}, lock_then=no_lock)
    assert (event.kind, event.lock_name) == ("Lock lost", LOCK)


def test_a_release_by_force_tells_who_and_why(bench: Bench) -> None:
    granted = bench.grant("anna")
    bench.wait("ben")
    told(bench)
    bench.force(granted)
    forced, new = told(bench)
    assert (forced.kind, new.kind) == ("Lock released by force", "Lock granted")
    assert (forced.requested_by, forced.reason) == ("olga", "a test")


def test_a_grant_whose_version_supersedes_lower_ones_tells_that_version(bench: Bench) -> None:
    for name, version in (("anna", 7), ("ben", 7), ("carl", None), ("dora", 9)):
        bench.ask(name, only_newest=version)
        bench.release(name)
    granted = [event for event in told(bench) if event.kind == "Lock granted"]
    assert [event.newest for event in granted] == [7, None, None, 9]
    shown = lifecycle_json(granted[-1], event_id="1", at_ms=bench.clock.wall_ms())
    assert shown["newest"] == 9


def test_a_waiter_below_a_granted_version_is_superseded(bench: Bench) -> None:
    bench.wait("anna", only_newest=1)
    for name, version in (("ben", 2), ("zita", 9), ("carl", None), ("dora", 8)):
        bench.wait(name, only_newest=version, execution_arn=f"{OTHER_RUN}-{name}")
    assert kinds(bench) == [("Lock granted", "anna")]
    bench.release("anna", execution_arn=RUN)
    told_now = told(bench)
    superseded = [event for event in told_now if event.kind == "Waiter superseded"]
    assert sorted(one.owner_name or "" for one in superseded) == ["ben", "dora"]
    assert [event.kind for event in told_now if event not in superseded] == [
        "Lock released",
        "Lock granted",
    ]
    [ben] = [event for event in superseded if event.owner_name == "ben"]
    assert lifecycle_json(ben, event_id="1", at_ms=bench.clock.wall_ms()) == {
        "event_id": "1",
        "lock_name": LOCK,
        "at": "2030-03-17T17:46:45.000Z",
        "owner_name": "ben",
        "execution_arn": f"{OTHER_RUN}-ben",
        "version": 2,
        "newest": 9,
    }


def test_a_version_that_gives_up_or_is_granted_is_not_superseded(bench: Bench) -> None:
    bench.wait("anna", only_newest=5)
    bench.wait("ben", only_newest=6)
    bench.wait("carl", only_newest=5)
    bench.release("carl", waits=True, execution_arn=RUN)
    bench.release("anna", execution_arn=RUN)
    assert kinds(bench) == [
        ("Lock granted", "anna"),
        ("Lock released", "anna"),
        ("Lock granted", "ben"),
    ]


def test_what_superseded_a_waiter_is_told_by_the_writes_around_or_by_the_lock(bench: Bench) -> None:
    for name, version in (("anna", 1), ("ben", 2), ("zita", 9)):
        bench.wait(name, only_newest=version)
    bench.release("anna", execution_arn=RUN)
    records = bench.client.take()
    [left] = [
        record
        for record in records
        if record["eventName"] == "REMOVE"
        and record["dynamodb"]["OldImage"]["owner_name"] == {"S": "ben"}
    ]
    locks = [record for record in records if record["dynamodb"]["Keys"]["sk"] == {"S": "STATE"}]
    granted, handed_over = locks[0], locks[-1]
    now = read_state(handed_over["dynamodb"]["NewImage"])

    def version_told(*batch: dict[str, Any], lock: LockState | None = None) -> int | None:
        read = list[str]()

        def reading(name: str) -> LockState:
            read.append(name)
            return lock or LockState()

        events = list(StreamRecords(batch, reading).events(batch.index(left)))
        assert read == ([] if len(batch) > 1 else [LOCK]), "a read only if no write tells"
        return events[0].newest if events else None

    assert version_told(handed_over, left) == 9
    assert version_told(granted, left, handed_over) is None, "the last write before it tells"
    assert version_told(left, handed_over) is None, "it left before that write"
    assert version_told(left, lock=now) == 9
    assert version_told(left) is None
    by_ttl = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    expired = [{**left, "userIdentity": by_ttl}, handed_over]
    assert list(StreamRecords(expired, no_lock).events(0)) == [], "it died days ago"


@pytest.mark.parametrize(("version", "told_version"), [(2, 2), (None, None)])
def test_a_plain_grant_tells_no_version_if_that_of_a_dead_newest_is_put_back(
    bench: Bench, version: int | None, told_version: int | None
) -> None:
    bench.wait("anna", only_newest=1)
    bench.wait("dead", only_newest=3, execution_arn=OTHER_RUN)
    bench.wait("ben", only_newest=version)
    bench.end(OTHER_RUN)
    bench.gone("dead")
    told(bench)
    bench.release("anna", execution_arn=RUN)
    granted = [event for event in told(bench) if event.kind == "Lock granted"]
    assert [event.newest for event in granted] == [3, told_version]


def test_an_execution_that_is_over_is_reaped_once_for_each_acquisition(bench: Bench) -> None:
    bench.ask("anna", execution_arn=RUN)
    bench.wait("zita", execution_arn=OTHER_RUN)
    told(bench)
    bench.bury()
    events = told(bench)
    told_kinds = [event.kind.value for event in events]
    assert told_kinds == ["Lock reaped", "Lock released", "Lock granted"]
    assert [event.execution_arn for event in events] == [RUN, RUN, OTHER_RUN]
    assert events[0].lock_name == LOCK


@pytest.mark.parametrize("keep_alive", [False, True])
def test_a_workflow_that_releases_by_itself_is_not_reaped(
    bench: Bench, *, keep_alive: bool
) -> None:
    """With keep_alive its claim stays, and the reaper fences it all the same."""
    bench.ask("anna", execution_arn=RUN)
    bench.release("anna", execution_arn=RUN, keep_alive=keep_alive)
    bench.bury()
    assert kinds(bench) == [("Lock granted", "anna"), ("Lock released", "anna")]


def test_no_event_shows_what_proves_ownership(bench: Bench) -> None:
    bench.ask("anna", data='{"secret":1}')
    bench.wait("ben")
    bench.release("anna")
    for event in told(bench):
        shown = json.dumps(lifecycle_json(event, event_id="1", at_ms=bench.clock.wall_ms()))
        for name in ("anna", "ben"):
            assert owner(name) not in shown
        assert "secret" not in shown


def test_the_json_of_a_grant_and_of_its_end(bench: Bench) -> None:
    granted = bench.grant("anna", execution_arn=RUN)
    bench.clock.advance(12)
    bench.release("anna", execution_arn=RUN)
    shown: list[dict[str, Any]] = [
        lifecycle_json(event, event_id="7-0", at_ms=bench.clock.wall_ms()) for event in told(bench)
    ]
    common = {
        "event_id": "7-0",
        "lock_name": LOCK,
        "at": "2030-03-17T17:46:52.000Z",
        "execution_arn": RUN,
        "owner_name": "anna",
        "fencing_token": granted.fencing_token,
        "acquired_at": "2030-03-17T17:46:40.000Z",
    }
    assert shown == [{**common, "limit": 1, "lease_seconds": 60.0}, {**common, "held_ms": 12_000}]


def test_an_item_that_someone_has_changed_is_malformed(bench: Bench) -> None:
    bench.ask("anna")
    item = bench.client.take()[0]["dynamodb"]["NewImage"]
    with pytest.raises(LockItemMalformed):
        list(events_of({}, {**item, "fencing_token": {"S": "none"}}, lock_then=no_lock))


def test_the_grant_of_a_reader_says_that_it_shares_and_any_other_says_nothing(bench: Bench) -> None:
    bench.ask("anna", shared=True, limit=20)
    bench.ask("ben", lock_name="other")
    told_of = [lifecycle_json(event, event_id="7", at_ms=1) for event in told(bench)]
    assert [event.get("shared") for event in told_of] == [True, None]
