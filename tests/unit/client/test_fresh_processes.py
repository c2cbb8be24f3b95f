"""A holder crashed, and the next client is a process that has just begun, with all defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from fairlock import LockClient, LockStoreMisconfigured, LockStoreUnavailable
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table
from tests.unit.client.support.simulated_heartbeats import SimulatedHeartbeats

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
