"""A holder crashed, and the next client is a process that has just begun, with all defaults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leasehold import LockClient, LockWaitTimeout
from leasehold.client.settings import ClientSettings
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table
from tests.unit.client.support.simulated_heartbeats import SimulatedHeartbeats

HOUR = 3600.0
NewProcess = Callable[..., LockClient]


@pytest.fixture
def new_process(
    table: Table, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NewProcess]:
    """What a program has that has just begun: a client with all defaults, but table and clock.

    No heartbeat is ever sent. (A thread would wake up in real time, and renew in simulated time.)
    """
    monkeypatch.setattr("leasehold.client.lock_client.Heartbeats", SimulatedHeartbeats)
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


def test_a_process_that_has_just_begun_replaces_a_crashed_holder(
    new_process: NewProcess, table: Table, clock: EventfulClock
) -> None:
    crash(new_process)
    for _ in range(3):
        clock.advance(6 * HOUR)
        began = clock.now_ms
        new_process().acquire("nightly").release()
        assert clock.now_ms - began < 62_000
        crash(new_process, max_wait=0)
    assert table.state("nightly").held == 1


def test_with_a_wait_as_long_as_the_lease_none_ever_would(
    new_process: NewProcess, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: to watch a lease takes a little longer than the lease."""
    monkeypatch.setattr(ClientSettings, "longest_wait", lambda _settings, lease: lease)
    crash(new_process)
    for _ in range(8):
        clock.advance(6 * HOUR)
        with pytest.raises(LockWaitTimeout):
            new_process().acquire("nightly")


@pytest.mark.parametrize("lease", [1, 60, 300, 12 * HOUR])
def test_the_default_wait_is_longer_than_it_takes_to_watch_a_lease_of_ones_own_length(
    new_process: NewProcess, clock: EventfulClock, lease: float
) -> None:
    crash(new_process, lease=lease)
    clock.advance(24 * HOUR)
    new_process().acquire("nightly", lease=lease)
    crash(new_process, lease=lease, max_wait=3 * lease)
    new_process(lease=lease).acquire("nightly")


def test_who_does_not_wait_long_enough_is_told_what_to_do(
    new_process: NewProcess, clock: EventfulClock
) -> None:
    crash(new_process)
    clock.advance(HOUR)
    with pytest.raises(LockWaitTimeout) as told:
        new_process().acquire("nightly", max_wait=10)
    assert str(told.value) == (
        "lock 'nightly': not handed over within 10 s; last held by crashed since "
        f"{told.value.holders[0].acquired_at:%Y-%m-%d %H:%M:%S}+00:00 (the lease of crashed "
        "is over by the wall clock, but this client has not watched it for its whole length; a "
        'wait of 62 s would, and takeover="stored_expiry" goes by the wall clock)'
    )
    new_process().acquire("nightly", max_wait=62)


def test_who_follows_the_other_advice_is_not_kept_waiting(
    new_process: NewProcess, clock: EventfulClock
) -> None:
    crash(new_process)
    clock.advance(HOUR)
    assert new_process(takeover="stored_expiry").try_acquire("nightly") is not None


def test_one_look_is_no_watch_and_the_log_says_so(
    new_process: NewProcess, clock: EventfulClock, caplog: pytest.LogCaptureFixture
) -> None:
    crash(new_process)
    clock.advance(HOUR)
    with caplog.at_level(logging.WARNING, "leasehold"):
        assert new_process().try_acquire("nightly") is None
    assert (
        "lock 'nightly': not taken; the lease of crashed is over by the wall clock" in caplog.text
    )
    assert 'takeover="stored_expiry"' in caplog.text


@pytest.mark.parametrize("skew", [0.0, -7200.0])
def test_of_a_holder_that_lives_nothing_of_the_kind_is_said(
    new_process: NewProcess, clock: EventfulClock, caplog: pytest.LogCaptureFixture, skew: float
) -> None:
    """The control. A contender whose clock is behind has no reason to doubt either."""
    crash(new_process)
    clock.advance(30)
    contender = new_process(clock=SkewedClock(clock, skew))
    assert contender.try_acquire("nightly") is None
    assert caplog.text == ""
    with pytest.raises(LockWaitTimeout, match=r"last held by crashed since [^(]+$"):
        contender.acquire("nightly", max_wait=10)


def test_the_default_wait_is_that_of_the_client_if_it_has_one(new_process: NewProcess) -> None:
    assert new_process(max_wait=7).longest_wait(600) == 7
    assert new_process().longest_wait() == 120
    assert new_process(lease=90).longest_wait() == 180
    assert new_process(lease=90).longest_wait(300) == 600
