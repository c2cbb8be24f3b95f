"""Many clients at the same moment: increments, fresh processes, hundreds of locks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from testbed.localaws import LocalAws
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table
from tests.unit.client.support.simulated_heartbeats import SimulatedHeartbeats
from tests.unit.client.support.wire import Together, Wire, dynamodb_of

# Many clients, one lock, a server whose writes are atomic.

CLIENTS = 6
ROUNDS = 5


class Counter:
    """A number in the table that is read and written back in two requests."""

    def __init__(self, aws: LocalAws, table_name: str) -> None:
        self._client = aws.client("dynamodb")
        self._table_name = table_name
        self._key = {
            PARTITION_KEY: {"S": f"counter-{uuid.uuid4()}"},
            SORT_KEY: {"S": "COUNTER"},
        }

    def value(self) -> int:
        found = self._client.get_item(
            TableName=self._table_name, Key=self._key, ConsistentRead=True
        )
        return int(found["Item"]["value"]["N"]) if "Item" in found else 0

    def increment(self) -> None:
        value = {"N": str(self.value() + 1)}
        self._client.put_item(TableName=self._table_name, Item={**self._key, "value": value})


@pytest.mark.parametrize("locked", [True, False])
def test_increments_in_two_steps_survive_exactly_if_each_is_locked(
    aws: LocalAws, lock_table: str, *, locked: bool
) -> None:
    counter = Counter(aws, lock_table)
    tokens: list[int] = []

    def work() -> None:
        with LockClient(lock_table, client=dynamodb_of(aws), lease=10) as locks:
            for _ in range(ROUNDS):
                block = locks.hold(f"counting-{locked}", max_wait=60) if locked else nullcontext()
                with block as lock:
                    counter.increment()
                    if lock is not None:
                        tokens.append(lock.fencing_token)

    Together().run(*[work] * CLIENTS)
    everything = CLIENTS * ROUNDS
    assert (counter.value() == everything) is locked
    assert tokens == sorted(set(tokens))
    assert len(tokens) == (everything if locked else 0)


def test_clients_get_the_lock_in_the_order_in_which_they_asked(
    aws: LocalAws, lock_table: str
) -> None:
    order: list[int] = []
    name = "in-order"
    with LockClient(lock_table, client=dynamodb_of(aws), lease=30) as locks:
        first = locks.acquire(name)

        def wait_for_it(number: int) -> None:
            with LockClient(lock_table, client=dynamodb_of(aws), lease=30) as mine:
                until(lambda: waiting(aws, lock_table, name) == number)
                with mine.hold(name, max_wait=60):
                    order.append(number)

        def leave() -> None:
            until(lambda: waiting(aws, lock_table, name) == CLIENTS)
            first.release()

        Together().run(leave, *[partial(wait_for_it, number) for number in range(CLIENTS)])
    assert order == list(range(CLIENTS))


def test_requests_on_the_wire_are_one_each_and_a_waiter_only_reads(
    aws: LocalAws, lock_table: str
) -> None:
    mine, theirs = Wire(), Wire()
    holder = LockClient(lock_table, client=dynamodb_of(aws, mine), lease=30)
    waiter = LockClient(lock_table, client=dynamodb_of(aws, theirs), lease=30)
    got: list[Lock] = []
    with holder, waiter:
        lock = holder.acquire("on-the-wire")
        assert mine.sent == ["UpdateItem"]
        lock.heartbeat()
        assert mine.sent == ["UpdateItem"] * 2

        def leave() -> None:
            until(lambda: len(theirs.sent) >= 12)
            lock.release()

        Together().run(leave, lambda: got.append(waiter.acquire("on-the-wire", max_wait=60)))
        join = ["Query", "TransactWriteItems", "UpdateItem"]
        assert theirs.sent[:4] == ["UpdateItem", *join]
        assert set(theirs.sent[4:]) == {"Query"}
        theirs.sent.clear()
        assert got[0].release() is True
        assert theirs.sent == ["Query", "UpdateItem"]  # No one waits: the queue is closed.


def waiting(aws: LocalAws, table_name: str, lock_name: str) -> int:
    """How many wait for a lock."""
    found = aws.client("dynamodb").query(
        TableName=table_name,
        KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
        ExpressionAttributeValues={
            ":pk": {"S": f"LOCK#{lock_name}"},
            ":prefix": {"S": "WAITER#"},
        },
        ConsistentRead=True,
    )
    return int(found["Count"])


def until(is_so: Callable[[], bool], *, seconds: float = 30) -> None:
    """Looks until it is so."""
    ends_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends_at, "it never came"
        time.sleep(0.02)


# A holder crashed, and the next client is a process that has just begun, with all defaults.

NewProcess = Callable[..., LockClient]


@pytest.fixture
def new_process(
    table: Table, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NewProcess]:
    """What a program has that has just begun: a client with all defaults, but table and clock.

    No heartbeat is ever sent. (A thread would wake up in real time, and renew in simulated time.)
    """
    monkeypatch.setattr("fairlock.client.lock_client.Heartbeats", SimulatedHeartbeats)
    begun = []

    def begin(**settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        stand_ins: dict[str, Any] = {"client": table, "clock": clock}
        client = LockClient("locks", **{**stand_ins, **settings})
        begun.append(client)
        return client

    yield begin
    for client in begun:
        client.close()


def crash(new_process: NewProcess, **wanted: Any) -> None:  # noqa: ANN401 - as of acquire
    """Acquires, and never renews or releases."""
    new_process(owner_name="crashed").acquire("nightly", **wanted)


def test_each_of_24_fresh_processes_replaces_a_dead_holder_at_its_first_try(
    new_process: NewProcess, table: Table, clock: EventfulClock
) -> None:
    """The promise: a dead holder is replaced its lease + 5 s after its last renewal."""
    replaced = 0
    crash(new_process, lease=2)
    for _ in range(24):
        clock.advance(7)
        replaced += new_process(lease=2).try_acquire("nightly") is not None
    assert replaced == 24
    assert table.log.count("update_item") == 1 + 24 * 2


def test_without_a_date_at_aws_none_would(
    new_process: NewProcess, table: Table, clock: EventfulClock
) -> None:
    """The control, and a typed error that says what to do."""
    crash(new_process, lease=2)
    table.clock, table.meta.endpoint_url = None, "https://dynamodb.eu-west-1.amazonaws.com"
    for _ in range(24):
        clock.advance(7)
        with pytest.raises(LockStoreMisconfigured, match='give clock="system"') as told:
            new_process(lease=2).try_acquire("nightly")
        assert told.value.code == "NoDate"
    assert new_process(lease=2, clock="system").try_acquire("nightly") is None


@pytest.mark.parametrize("skew", [-240.0, -5.0, 5.0, 240.0])
def test_a_first_write_by_a_wrong_clock_is_corrected_by_one_request(
    new_process: NewProcess, table: Table, clock: EventfulClock, skew: float
) -> None:
    wrong = new_process(clock=SkewedClock(clock, skew), lease=9)
    lock = wrong.acquire("nightly")
    assert table.log == ["update_item"] * 2
    [holder] = table.state("nightly").holders
    assert clock.now_ms + 8_000 < holder.expires_at_ms < clock.now_ms + 12_000
    assert (holder.fencing_token, holder.revision) == (lock.fencing_token, 2)
    assert lock.remaining > 4.5
    lock.release()
    wrong.acquire("nightly").release()
    assert table.log == ["update_item"] * 5, "from now on it knows better"


def test_a_clock_that_is_right_costs_no_request(new_process: NewProcess, table: Table) -> None:
    new_process().acquire("nightly").release()
    assert table.log == ["update_item"] * 2


def test_a_slow_clock_raises_the_token_that_it_has_made(
    new_process: NewProcess, table: Table, clock: EventfulClock
) -> None:
    lock = new_process(clock=SkewedClock(clock, -240)).acquire("nightly")
    assert lock.fencing_token > (clock.now_ms - 2_000) * 1000
    assert table.state("nightly").fencing_token == lock.fencing_token
    lock.heartbeat()
    lock.check()


@pytest.mark.parametrize(("corrects", "most_seconds"), [(True, 9 + 5), (False, 240 + 9 + 5)])
def test_a_fast_clock_that_dies_before_it_corrects_blocks_for_its_error_and_no_longer(
    new_process: NewProcess,
    table: Table,
    clock: EventfulClock,
    *,
    corrects: bool,
    most_seconds: float,
) -> None:
    fast = new_process(clock=SkewedClock(clock, 240), lease=9)
    if not corrects:
        table.fails_after = 1
    with suppress(LockStoreUnavailable):
        fast.try_acquire("nightly")
    table.fails_after = None
    clock.advance(most_seconds - 6)
    assert new_process().try_acquire("nightly") is None
    clock.advance(6)
    assert new_process().try_acquire("nightly") is not None


def test_the_default_wait_is_that_of_the_client_if_it_has_one(new_process: NewProcess) -> None:
    assert new_process(max_wait=7).longest_wait(600) == 7
    assert new_process().longest_wait() == 120
    assert new_process(lease=90).longest_wait() == 180
    assert new_process(lease=90).longest_wait(300) == 600


# A thousand locks of one client over a table that takes 50 ms for each request, in real time.

LEASE_SECONDS = 10
LOCKS = 1_000
LATENCY_SECONDS = 0.05
WORKERS = 32
MOST_LAG_SECONDS = 0.5
"""If the machine lets a thread wait for longer than that, what it measures says nothing."""


@dataclass
class TimedTable(Table):
    """Remembers when each lock was granted and renewed."""

    moments: dict[str, list[float]] = field(default_factory=dict)

    def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        answer = super()._send(name, arguments)
        self.moments.setdefault(arguments["Key"]["pk"]["S"], []).append(time.monotonic())
        return answer

    def largest_gap(self) -> float:
        """Seconds from one write to the next, of the lock for which that took longest."""
        now = time.monotonic()
        return max(
            later - earlier
            for moments in [[*moments, now] for moments in self.moments.values()]
            for earlier, later in pairwise(moments)
        )


@dataclass(frozen=True)
class Outcome:
    """How a thousand locks fared: how many are in order at the end, and the largest gap."""

    in_order: int
    largest_gap: float


def hold_a_thousand(*, max_workers: int, seconds: float) -> Outcome:
    """Acquires them as fast as it goes, and keeps them."""
    table = TimedTable()
    troubled: list[Lock] = []

    def trouble(lock: Lock, _reason: str) -> None:
        troubled.append(lock)

    with LockClient(
        "locks",
        client=table,  # type: ignore[arg-type]  # replaces a client
        lease=LEASE_SECONDS,
        max_workers=max_workers,
    ) as locks:
        held = [
            locks.acquire(f"lock-{number}", on_danger=trouble, on_lost=trouble)
            for number in range(LOCKS)
        ]
        table.latency_seconds = LATENCY_SECONDS
        time.sleep(seconds)
        in_order = [lock for lock in held if lock.remaining > 0 and lock not in troubled]
        outcome = Outcome(len(in_order), table.largest_gap())
        table.latency_seconds = 0
        return outcome


@contextmanager
def lag_of_the_machine() -> Iterator[list[float]]:
    """How many seconds late a thread woke up that has nothing to do, each time."""
    late: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            before = time.monotonic()
            over.wait(0.01)
            late.append(time.monotonic() - before - 0.01)

    probe = threading.Thread(target=look)
    probe.start()
    try:
        yield late
    finally:
        over.set()
        probe.join(30)


@pytest.fixture(scope="module")
def outcomes() -> tuple[Outcome, Outcome]:
    """With the default number of workers, and with one; side by side, to save time."""
    with lag_of_the_machine() as late, ThreadPoolExecutor(2) as pool:
        many = pool.submit(hold_a_thousand, max_workers=WORKERS, seconds=LEASE_SECONDS + 1)
        one = pool.submit(hold_a_thousand, max_workers=1, seconds=0.75 * LEASE_SECONDS)
        found = many.result(120), one.result(120)
    if is_in_time(found[0]) or max(late) <= MOST_LAG_SECONDS:
        return found
    return hold_a_thousand(max_workers=WORKERS, seconds=LEASE_SECONDS + 1), found[1]


def is_in_time(found: Outcome) -> bool:
    return found.in_order == LOCKS and found.largest_gap < LEASE_SECONDS / 2


def test_a_thousand_locks_at_50_ms_are_renewed_within_half_their_lease(
    outcomes: tuple[Outcome, Outcome], record_property: Callable[[str, object], None]
) -> None:
    many, one = outcomes
    record_property(
        "figures",
        f"{LOCKS:,} locks with leases of {LEASE_SECONDS} s, {1000 * LATENCY_SECONDS:.0f} ms a "
        f"request: largest time between two renewals of a lock {many.largest_gap:.1f} s, with one "
        f"worker {one.largest_gap:.1f} s",
    )
    assert many.in_order == LOCKS
    assert many.largest_gap < LEASE_SECONDS / 2


def test_heartbeats_one_after_the_other_would_be_too_slow(
    outcomes: tuple[Outcome, Outcome],
) -> None:
    _, one = outcomes
    assert one.in_order < LOCKS / 2
    assert one.largest_gap > LEASE_SECONDS / 2
