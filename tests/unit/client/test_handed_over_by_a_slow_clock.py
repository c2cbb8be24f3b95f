"""A lock that somebody with a slow clock handed over is not over for others at once."""

from __future__ import annotations

import pytest

from leasehold.client import acquisition as waiting
from leasehold.protocol.model import Grant, Refusal
from tests.support import acquire, store_over
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, SkewedClock, Table

SLOW_SECONDS = -90.0


@pytest.fixture(autouse=True)
def finds_itself_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ben reads the lock only: a read of his own place, which is gone, makes him ask again."""
    monkeypatch.setattr(waiting, "_PLACE_CHECK_SECONDS", 1_000_000)


def is_robbed(make_client: MakeClient, table: Table, clock: EventfulClock) -> bool:
    """Whether a direct caller, who goes by the stored end, is granted what ben has just got."""
    slow = make_client("anna", lease=600, clock=SkewedClock(clock, SLOW_SECONDS)).acquire("a")
    clock.at(10, slow.release)
    held = make_client("ben").acquire("a", lease=30, max_wait=60)
    answer = store_over(table, clock).acquire(acquire("carl", lock_name="a"))
    held.check()
    assert isinstance(answer, Grant | Refusal)
    return isinstance(answer, Grant)


def test_the_next_holder_corrects_the_end_of_its_lease_first(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    assert not is_robbed(make_client, table, clock)


def test_without_that_it_would_be_robbed(
    make_client: MakeClient, table: Table, clock: EventfulClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting.Acquisition, "_renew_if_late", lambda _self, granted: granted)
    assert is_robbed(make_client, table, clock)
