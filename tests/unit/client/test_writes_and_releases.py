"""Guarded writes beside a release, and after one of which no one knows: no false loss."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fairlock import Lock, LockClient, LockLost, LockStoreUnavailable
from fairlock.client.local_lease import LocalLease
from fairlock.errors import TransactionRefused
from tests.support.faults import lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import Table

PUT: Any = {"Put": {"TableName": "notes", "Item": {"pk": {"S": "n"}, "sk": {"S": "n"}}}}
REFUSED: Any = {
    "Put": {
        **PUT["Put"],
        "ConditionExpression": "attribute_exists(#pk)",
        "ExpressionAttributeNames": {"#pk": "pk"},
    }
}


class SlowTable(Table):
    """A release overtakes the write, and its answer is on its way until that is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.released, self.refused = threading.Event(), threading.Event()
        self.releasing = threading.Thread()

    def _send(self, name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if name == "transact_write_items":
            self.releasing.start()
            assert self.released.wait(10)
        answer = super()._send(name, arguments)
        if "REMOVE #mine" in arguments.get("UpdateExpression", ""):
            self.released.set()
            assert self.refused.wait(10)
        return answer


def write_during_a_release(told: list[Lock]) -> Lock:
    table = SlowTable()
    with LockClient("locks", client=table, lease=3600) as locks:  # type: ignore[arg-type]  # a substitute
        lock = locks.acquire("a", on_lost=lambda lost, _reason: told.append(lost))
        table.releasing = threading.Thread(target=lock.release)
        with pytest.raises(LockLost):
            lock.transact_write([PUT])
        table.refused.set()
        table.releasing.join(10)
    return lock


def test_a_write_that_is_refused_because_of_our_own_release_is_no_loss() -> None:
    told: list[Lock] = []
    assert not write_during_a_release(told).lost.is_set()
    assert told == []


def test_one_that_takes_every_refusal_for_a_loss_would_tell_a_false_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose = LocalLease.lose

    def always(self: LocalLease, reason: str, **how: Any) -> None:  # noqa: ANN401 - as it is
        lose(self, reason, **{**how, "unless_releasing": False})

    monkeypatch.setattr(LocalLease, "lose", always)
    told: list[Lock] = []
    assert write_during_a_release(told).lost.is_set()
    assert len(told) == 1


def test_after_a_refused_repeat_of_an_unknown_release_the_lock_waits_for_its_release(
    make_client: MakeClient, table: Table
) -> None:
    """It is held in the table, but not renewed; and the first sending may be written yet."""
    lock = make_client().acquire("a")
    table.outage = lost_reply()
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([REFUSED], token="one", release=True)
    table.outage = None
    with pytest.raises(LockStoreUnavailable, match="may be written yet"):
        lock.transact_write([REFUSED], token="one", release=True)
    with pytest.raises(LockLost, match="may have been released"):
        lock.check()
    assert (table.state("a").held, lock.lost.is_set()) == (1, False)
    lock.transact_write([PUT], token="two", release=True)
    assert (table.state("a").held, lock.release()) == (0, True)


def test_a_first_refusal_leaves_all_as_it_was(make_client: MakeClient, table: Table) -> None:
    """The control of the one before."""
    lock = make_client().acquire("a")
    with pytest.raises(TransactionRefused):
        lock.transact_write([REFUSED], release=True)
    lock.check()
    lock.heartbeat()
    assert table.state("a").holders[0].revision == 2


def test_after_an_unknown_release_another_write_that_is_refused_is_no_loss(
    make_client: MakeClient, table: Table
) -> None:
    told: list[Lock] = []
    lock = make_client().acquire("a", on_lost=lambda lost, _reason: told.append(lost))
    table.loses_replies = True
    with pytest.raises(LockStoreUnavailable):
        lock.transact_write([PUT], release=True)
    table.loses_replies = False
    with pytest.raises(LockLost):
        lock.transact_write([REFUSED], release=True)
    assert (lock.lost.is_set(), lock.release(), told) == (False, True, [])
