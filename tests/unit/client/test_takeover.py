"""Taking over from a holder that vanished, and never from one that lives, whatever the clocks say.

One process runs behind the clock that AWS has; another one's wall clock is two hours off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockWaitTimeout
from fairlock.client import local_waiters
from fairlock.client.reporting import log_event
from fairlock.protocol import outcomes
from fairlock.protocol.model import ForceReleaseRequest, Grant
from fairlock.store.context import Evicted
from testbed.localaws import LocalAws
from tests.support import acquire, heartbeat, store_over
from tests.support.operations import Operations
from tests.unit.client.conftest import MakeClient
from tests.unit.client.programs.stopped_while_holding import LEASE_SECONDS, LOCKS, WRITES
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table
from tests.unit.client.support.wire import dynamodb_of

TWO_HOURS = 7200.0


def beat_every(clock: EventfulClock, lock: Lock, seconds: float, *, times: int) -> None:
    for number in range(1, times + 1):
        clock.at(seconds * number, lock.heartbeat)


def robs_a_renewing_holder(
    make_client: MakeClient, clock: EventfulClock, contender: LockClient, *, lease: float = 60
) -> bool:
    """Whether the contender gets a lock whose holder renews it all the time."""
    lock = make_client("anna", lease=60).acquire("a")
    beat_every(clock, lock, 20, times=30)
    try:
        contender.acquire("a", max_wait=500, lease=lease)
    except LockWaitTimeout:
        lock.check()
        return False
    with pytest.raises(LockLost):
        lock.heartbeat()
    return True


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
def test_a_contender_whose_clock_is_two_hours_wrong_robs_no_one(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    contender = make_client("ben", clock=SkewedClock(clock, skew))
    assert not robs_a_renewing_holder(make_client, clock, contender)


def test_by_the_systems_clock_one_two_hours_ahead_would_rob(
    make_client: MakeClient, clock: EventfulClock, table: Table
) -> None:
    table.clock = None
    contender = make_client("ben", clock=SkewedClock(clock, TWO_HOURS))
    assert robs_a_renewing_holder(make_client, clock, contender)


@pytest.mark.parametrize("skew", [-TWO_HOURS, TWO_HOURS])
def test_a_holder_whose_clock_is_two_hours_wrong_is_robbed_by_no_one(
    make_client: MakeClient, clock: EventfulClock, skew: float
) -> None:
    lock = make_client("anna", lease=60, clock=SkewedClock(clock, skew)).acquire("a")
    beat_every(clock, lock, 20, times=30)
    with pytest.raises(LockWaitTimeout):
        make_client("ben").acquire("a", max_wait=500)
    lock.check()


def test_a_contenders_own_short_lease_is_no_measure_of_the_holders(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    assert not robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


def test_a_measure_by_the_contenders_own_lease_would_rob(
    make_client: MakeClient, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
        return date_ms >= expires_at_ms - 59_000

    for module in (outcomes, local_waiters):
        monkeypatch.setattr(module, "is_over", is_over)
    assert robs_a_renewing_holder(make_client, clock, make_client("ben"), lease=1)


@pytest.mark.parametrize("skew", [-TWO_HOURS, 0.0, TWO_HOURS])
@pytest.mark.parametrize("skew_of_the_dead", [-TWO_HOURS, 0.0, TWO_HOURS])
def test_a_waiting_client_replaces_a_dead_holder_after_its_lease_and_five_seconds(
    make_client: MakeClient, clock: EventfulClock, skew: float, skew_of_the_dead: float
) -> None:
    make_client("anna", lease=60, clock=SkewedClock(clock, skew_of_the_dead)).acquire("a")
    began = clock.now_ms
    make_client("ben", clock=SkewedClock(clock, skew)).acquire("a", max_wait=3600).check()
    assert 60_000 < clock.now_ms - began < 65_000


def test_a_dead_holder_that_had_renewed_is_replaced_that_long_after_its_last_renewal(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=60).acquire("a")
    beat_every(clock, lock, 20, times=2)
    began = clock.now_ms
    make_client("ben").acquire("a", max_wait=3600).check()
    assert 100_000 < clock.now_ms - began < 105_000


def test_a_single_try_replaces_a_dead_holder_from_the_date_that_shows_its_end(
    make_client: MakeClient, clock: EventfulClock
) -> None:
    make_client("anna", lease=60).acquire("a")
    ben = make_client("ben")
    clock.advance(61.999)
    assert ben.try_acquire("a") is None
    clock.advance(0.001)
    assert ben.try_acquire("a") is not None


@pytest.mark.parametrize("renews", [True, False])
def test_a_renewal_between_the_last_look_and_the_takeover_wins(
    make_client: MakeClient, clock: EventfulClock, table: Table, *, renews: bool
) -> None:
    direct = store_over(table, clock)
    direct.acquire(acquire("anna", lock_name="a"))
    ben = make_client("ben")
    clock.advance(65)
    writes: list[str] = []

    def renew_before_the_takeover(name: str, _arguments: object) -> None:
        writes.append(name)
        if len(writes) == 2 and renews:
            direct.heartbeat(heartbeat("anna", lock_name="a"))

    table.before = renew_before_the_takeover
    assert (ben.try_acquire("a") is None) is renews


def test_the_log_tells_how_many_were_evicted(caplog: pytest.LogCaptureFixture) -> None:
    for holders in (1, 2):
        log_event(Evicted(lock_name="a", holders=holders))
    assert caplog.messages == [
        "lock 'a': evicted a holder whose lease was over",
        "lock 'a': evicted 2 holders whose lease was over",
    ]


# A process that is stopped past its leases and goes on: its first use of each lock says lost.

CHECKOUT = Path(__file__).resolve().parents[3]
LIMIT_SECONDS = 60
"""For the program; it is killed if it takes longer."""


def freeze_and_thaw(aws: LocalAws, table_name: str, mode: str) -> dict[str, int]:
    """How many uses of each kind went through; all locks have other holders by then."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.unit.client.programs.stopped_while_holding",
            table_name,
            mode,
        ],
        cwd=CHECKOUT,
        env={"PATH": os.environ["PATH"], **aws.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    limit = threading.Timer(LIMIT_SECONDS, process.kill)
    limit.start()
    try:
        assert process.stdout.readline() == "holding\n"
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with LockClient(table_name, client=dynamodb_of(aws), lease=60) as others:
            names = [f"{mode}-{number}" for number in range(LOCKS)]
            assert [others.try_acquire(name) for name in names] == [None] * LOCKS
            time.sleep(LEASE_SECONDS + 5)
            assert all(others.try_acquire(name) is not None for name in names)
            assert time.monotonic() - stopped > LEASE_SECONDS
            process.stdin.write("go on\n")
            process.stdin.flush()
            process.send_signal(signal.SIGCONT)
            answer: dict[str, int] = json.loads(process.stdout.read())
        return answer
    finally:
        limit.cancel()
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def went_on(aws: LocalAws, lock_table: str) -> dict[str, dict[str, int]]:
    """With and without the protection, side by side, to save time."""
    modes = ("protected", "unprotected")
    with ThreadPoolExecutor(len(modes)) as pool:
        runs = pool.map(lambda mode: freeze_and_thaw(aws, lock_table, mode), modes)
        return dict(zip(modes, runs, strict=True))


def test_the_first_use_after_the_thaw_says_lost_and_every_guarded_write_is_refused(
    went_on: dict[str, dict[str, int]],
) -> None:
    assert went_on["protected"] == {
        "check": 0,
        "remaining": 0,
        "lost": 0,
        "heartbeat": 0,
        "transact_write": 0,
        "condition_check": 0,
        "no guard": 3 * WRITES,
    }


def test_a_lease_measured_by_a_clock_that_was_stopped_too_would_go_on(
    went_on: dict[str, dict[str, int]],
) -> None:
    uses = went_on["unprotected"]
    assert uses["check"] > 0
    assert uses["lost"] > 0
    # What DynamoDB decides needs no clock.
    assert (uses["heartbeat"], uses["transact_write"], uses["condition_check"]) == (0, 0, 0)


# A heartbeat renews by the owner_id, and is answered with the grant: another one is a loss.


@pytest.fixture
def store(table: Table, clock: EventfulClock) -> Operations:
    return store_over(table, clock)


def granted(store: Operations) -> Grant:
    """What a workflow acquired; a redriven one takes its lock again under the same owner_id."""
    answer = store.acquire(acquire("a workflow", lock_name="a"))
    assert isinstance(answer, Grant)
    return answer


def free(store: Operations, grant: Grant) -> None:
    request = ForceReleaseRequest(
        lock_name="a", fencing_token=grant.fencing_token, requested_by="ben", reason="a test"
    )
    assert store.force_release(request) is not None


def test_a_lock_is_lost_if_its_owner_id_was_granted_it_again(
    make_client: MakeClient, table: Table, store: Operations
) -> None:
    first = granted(store)
    lock = make_client().adopt("a", first.owner_id)
    free(store, first)
    second = granted(store)
    with pytest.raises(LockLost, match="another fencing token"):
        lock.heartbeat()
    assert lock.fencing_token == first.fencing_token < second.fencing_token
    assert not lock.release()
    assert table.state("a").holder(first.owner_id) is not None


def test_who_adopts_the_new_grant_holds_it(make_client: MakeClient, store: Operations) -> None:
    """The control: the owner_id is the same."""
    free(store, granted(store))
    second = granted(store)
    lock = make_client().adopt("a", second.owner_id)
    lock.heartbeat()
    assert lock.fencing_token == second.fencing_token
    assert lock.release()


@pytest.mark.parametrize("shown", ["NONE", "ALL_NEW", "UPDATED_OLD"])
def test_the_first_heartbeat_notices_a_server_that_does_not_show_the_token_before(
    make_client: MakeClient, table: Table, store: Operations, shown: str
) -> None:
    """Some that are not DynamoDB do not, and a wrong token was told. UPDATED_OLD is the control."""

    def show(_name: str, request: dict[str, Any]) -> None:
        if request.get("ReturnValues") == "UPDATED_OLD":
            request["ReturnValues"] = shown

    free(store, granted(store))
    table.before = show
    lock = make_client().acquire("a")
    [holder] = table.state("a").holders
    if lock.fencing_token == holder.fencing_token:
        assert shown == "UPDATED_OLD"
        lock.heartbeat()
    else:
        assert shown != "UPDATED_OLD"
        with pytest.raises(LockLost, match="another fencing token"):
            lock.heartbeat()
