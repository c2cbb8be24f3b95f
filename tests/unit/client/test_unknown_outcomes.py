"""An error is never a grant and never a refusal; what it may have left behind is taken back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock import LockStoreUnavailable
from fairlock.testing import ManualClock
from tests.support.faulty_table import FaultyTable, fault, lose, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import Table


def test_a_grant_whose_reply_was_lost_is_given_back_if_no_one_waits_for_it(
    make_client: MakeClient, table: Table
) -> None:
    """`try_acquire` tries once; what it may have got must not block others for a lease."""
    with pytest.raises(LockStoreUnavailable):
        make_client(client=FaultyTable(table, lose(1))).try_acquire("a")
    assert table.state("a").held == 0


def test_a_try_that_lands_after_its_caller_has_given_it_up_is_refused(
    make_client: MakeClient, table: Table
) -> None:
    """Else it would be granted to no one, until its lease ends."""
    late: list[dict[str, Any]] = []

    def hold_back(_name: str, arguments: dict[str, Any]) -> None:
        table.before = None
        late.append(arguments)
        raise lost_reply()

    table.before = hold_back
    with pytest.raises(LockStoreUnavailable):
        make_client().try_acquire("a")
    with suppress(ClientError):
        table.update_item(**late[0])
    assert table.state("a").held == 0


def test_a_grant_whose_reply_was_lost_is_found_by_asking_again(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    table.loses_replies = True
    clock.at(3, lambda: setattr(table, "loses_replies", False))
    lock = make_client().acquire("a", max_wait=60, lease=30)
    assert clock.monotonic() < 6
    assert lock.fencing_token == table.state("a").fencing_token
    # An early try has written it, so the lease is counted from there.
    assert lock.remaining < 30 * 0.98 - 2


def test_an_outage_is_waited_out(make_client: MakeClient, table: Table, clock: ManualClock) -> None:
    table.is_down = True
    clock.at(20, lambda: setattr(table, "is_down", False))
    make_client().acquire("a", max_wait=60).check()


def test_a_waiter_that_cannot_leave_says_that_the_outcome_is_unknown(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")
    clock.at(20, lambda: setattr(table, "is_down", True))
    with pytest.raises(LockStoreUnavailable):
        make_client("ben").acquire("a", max_wait=30)
    table.is_down = False
    # Its place ends by itself, soon after its wait, so that nothing is handed to it any more.
    assert table.waiters("a") == ["ben"]
    clock.advance(15)
    lock.release()
    make_client("carl").acquire("a", max_wait=0).check()


def test_a_release_whose_reply_was_lost_is_repeated_and_succeeds(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    lock = make_client().acquire("a")
    table.loses_replies = True
    clock.at(1, lambda: setattr(table, "loses_replies", False))
    assert lock.release() is True
    assert not lock.lost.is_set()


def test_a_release_of_unknown_outcome_is_repeated_after_others_came_and_went_and_is_no_loss(
    make_client: MakeClient, table: Table
) -> None:
    faulty = FaultyTable(table)
    lock = make_client(client=faulty).acquire("a")
    faulty.will(lose(1), fault(lost_reply(), range(2, 99)))
    with pytest.raises(LockStoreUnavailable):
        lock.release()
    faulty.will()
    make_client("ben").acquire("a", max_wait=0).release()
    assert lock.release() is True
    assert not lock.lost.is_set()


def test_a_stale_lock_keeps_its_own_token_and_its_release_changes_nothing(
    make_client: MakeClient, clock: ManualClock, table: Table
) -> None:
    stale = make_client("anna", lease=10).acquire("a")
    granted = stale.fencing_token
    clock.advance(30)
    newer = make_client("ben").acquire("a")
    # The counter, which a lock must not read: it would arm the stale holder with the new token.
    assert table.state("a").fencing_token == newer.fencing_token > granted
    assert stale.fencing_token == granted
    before = table.state("a")
    assert stale.release() is False
    assert table.state("a") == before
    newer.check()


def test_a_waiter_that_is_interrupted_while_it_gives_up_leaves_the_queue(
    make_client: MakeClient, table: Table, clock: ManualClock
) -> None:
    make_client("anna").acquire("a")

    def interrupt(name: str, _: dict[str, Any]) -> None:
        if name == "transact_write_items" and clock.monotonic() >= 5:
            table.before = None
            raise KeyboardInterrupt

    table.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        make_client("ben").acquire("a", max_wait=5)
    assert table.waiters("a") == []
