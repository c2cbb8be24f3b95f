"""`hold_all`: several locks in one order, within one wait, all or none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from enum import Enum
from typing import Any

import pytest

from fairlock import InvalidRequest, LockClient, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.client.several_locks import LocksInOrder
from fairlock.testing import FakeLockClient

PAIR = ["ben", "anna"]


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


def held(locks: LockClient, *names: str) -> list[bool]:
    described = [locks.describe(name) for name in names]
    return [bool(lock and lock.holders) for lock in described]


def test_the_body_has_all_locks_in_the_order_of_the_list_and_none_afterwards(
    locks: FakeLockClient,
) -> None:
    with locks.hold_all(PAIR) as (ben, anna):
        assert (ben.name, anna.name) == ("ben", "anna")
        assert held(locks, *PAIR) == [True, True]
    assert held(locks, *PAIR) == [False, False]


def test_each_lock_is_one_request_and_so_is_its_release(locks: FakeLockClient) -> None:
    with locks.hold_all(["a", "b", "c"]):
        assert locks.table.requests == ["update_item"] * 3
    assert locks.table.requests == ["update_item"] * 6


def test_locks_are_taken_by_the_bytes_of_their_names_and_released_in_reverse(
    locks: FakeLockClient,
) -> None:
    """UTF-16, as JavaScript and Java sort, has the two last ones the other way round."""
    happened: list[tuple[str, str]] = []
    client = locks.another(on_event=lambda event: happened.append((event.kind, event.lock_name)))
    with client.hold_all(["😀", "b", "\uff5e", "B", "é"]):
        pass
    order = ["B", "b", "é", "\uff5e", "😀"]
    assert [name for kind, name in happened if kind == "Granted"] == order
    assert [name for kind, name in happened if kind == "Released"] == order[::-1]


def test_if_one_is_not_handed_over_in_time_none_is_held(locks: FakeLockClient) -> None:
    other = locks.another("carl").acquire("ben")
    began = locks.clock.monotonic()
    with pytest.raises(LockWaitTimeout) as late, locks.hold_all(PAIR, max_wait=10):
        pass
    assert 10 <= locks.clock.monotonic() - began < 11
    assert late.value.lock_name == "ben"
    assert [holder.owner_name for holder in late.value.holders] == ["carl"]
    [note] = late.value.__notes__
    assert note == (
        "hold_all waited 10.0 of 10 s for 2 locks; given back: 'anna'; none of them is held"
    )
    assert held(locks, "anna") == [False]
    other.release()


def test_all_waits_together_are_no_longer_than_max_wait(locks: FakeLockClient) -> None:
    first, second = (locks.another().acquire(name) for name in ("anna", "ben"))
    locks.clock.at(6, first.release)
    locks.clock.at(12, second.release)
    began = locks.clock.monotonic()
    with pytest.raises(LockWaitTimeout, match="'ben'"), locks.hold_all(PAIR, max_wait=10):
        pass
    assert 10 <= locks.clock.monotonic() - began < 11


def test_with_a_wait_for_each_they_are_longer(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control."""
    monkeypatch.setattr(LocksInOrder, "rest", lambda plan, **_: plan.longest)
    first, second = (locks.another().acquire(name) for name in ("anna", "ben"))
    locks.clock.at(6, first.release)
    locks.clock.at(12, second.release)
    with locks.hold_all(PAIR, max_wait=10):
        pass


def test_without_a_wait_a_busy_lock_is_told_at_once(locks: FakeLockClient) -> None:
    locks.another().acquire("ben")
    began = locks.clock.monotonic()
    with pytest.raises(LockWaitTimeout), locks.hold_all(PAIR, max_wait=0):
        pass
    assert locks.clock.monotonic() == began
    assert held(locks, "anna") == [False]


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_a_lock_that_is_lost_while_the_next_is_waited_for_ends_the_wait_without_a_body(
    locks: FakeLockClient, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    if not protected:
        monkeypatch.setattr("fairlock.client.base_lock.BaseLock.check", lambda _: None)
    second = locks.another().acquire("ben", lease=600)
    client = locks.another(heartbeat_every=float("inf"))
    locks.clock.at(40, lambda: locks.clock.stall(60))
    locks.clock.at(105, second.release)
    began = False
    with (
        pytest.raises(LockLost) if protected else nullcontext(),
        client.hold_all(PAIR, lease=60, max_wait=300),
    ):
        began = True
    assert began is not protected
    assert held(locks, *PAIR) == [False, False]


def test_an_interrupt_while_the_second_is_waited_for_leaves_none(locks: FakeLockClient) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    other = locks.another().acquire("ben")
    locks.clock.at(3, interrupt)
    with pytest.raises(KeyboardInterrupt), locks.hold_all(PAIR, max_wait=60):
        pass
    other.release()
    assert held(locks, *PAIR) == [False, False]
    described = locks.describe("ben")
    assert described is not None
    assert described.waiters.count == 0


def test_an_unknown_outcome_of_one_is_no_grant_of_any(locks: FakeLockClient) -> None:
    first = True

    def fail(_lock: object, _reason: object) -> None: ...

    real = locks.hold

    def hold(name: str, **options: Any) -> Any:  # noqa: ANN401 - as of the client
        locks.table.is_down = name == "ben"
        return real(name, **options)

    locks.hold = hold  # type: ignore[method-assign]  # the outage begins in between
    with pytest.raises(LockStoreUnavailable), locks.hold_all(PAIR, max_wait=5, on_lost=fail):
        first = False
    assert first
    locks.table.is_down = False
    locks.clock.advance(70)
    assert locks.another().try_acquire("anna")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ("anna", "names: must be a list of 1 to 20 lock names; for one lock, use hold"),
        ([], "names: must be a list of 1 to 20"),
        ([str(number) for number in range(21)], "names: must be a list of 1 to 20"),
        ({"anna", "ben"}, "names: must be a list of 1 to 20"),
        (["anna", "ben", "anna"], "names: must have each lock once (got 'anna')"),
        (["anna", " ben"], "names: must not begin or end with a space"),
        (["anna", 7], "names: must be a string of 1 to 512 bytes"),
    ],
)
def test_a_list_that_breaks_a_rule_is_told_at_once_and_nothing_is_sent(
    locks: FakeLockClient,
    names: Any,  # noqa: ANN401 - wrong ones
    told: str,
) -> None:
    with pytest.raises(InvalidRequest) as refused, locks.hold_all(names):
        pass
    assert str(refused.value).startswith(told)
    assert locks.table.requests == []


class Name(str, Enum):  # noqa: UP042 - users have such ones
    """Whose text is another one than its value."""

    ANNA = "anna"


def test_a_name_is_the_same_as_text_and_as_an_enum(locks: FakeLockClient) -> None:
    with pytest.raises(InvalidRequest, match="must have each lock once"):
        locks.hold_all(["anna", Name.ANNA])


@pytest.mark.parametrize("max_wait", [-1, "long", float("nan")])
def test_a_wait_that_breaks_its_rule_is_told_at_once(
    locks: FakeLockClient,
    max_wait: Any,  # noqa: ANN401 - wrong ones
) -> None:
    with pytest.raises(InvalidRequest, match=r"^max_wait: "):
        locks.hold_all(PAIR, max_wait=max_wait)


def test_inside_a_block_of_one_of_them_it_is_refused_before_any_is_taken(
    locks: FakeLockClient,
) -> None:
    with locks.hold("ben"):
        sent = len(locks.table.requests)
        with pytest.raises(InvalidRequest, match="must not be 'ben' here"), locks.hold_all(PAIR):
            pass
        assert len(locks.table.requests) == sent


def test_readers_share_several_locks_and_a_writer_of_one_waits(locks: FakeLockClient) -> None:
    with (
        locks.hold_all(PAIR, shared=True),
        locks.another().hold_all(PAIR, shared=True) as others,
    ):
        assert [lock.shared for lock in others] == [True, True]
        assert locks.another().try_acquire("ben") is None


def test_what_the_body_raises_leaves_it_and_all_are_released(locks: FakeLockClient) -> None:
    with pytest.raises(ZeroDivisionError), locks.hold_all(PAIR):
        _ = 1 / 0
    assert held(locks, *PAIR) == [False, False]


def test_a_block_that_never_began_is_pointed_out(locks: FakeLockClient) -> None:
    with pytest.warns(ResourceWarning, match=r"with locks.hold_all\(\['ben', 'anna'\]\) as"):
        locks.hold_all(PAIR)


def test_a_list_where_one_name_is_wanted_is_told_what_takes_several(locks: FakeLockClient) -> None:
    for wants_one in (locks.acquire, locks.try_acquire, locks.release):
        arguments: Any = (PAIR, "an-owner-id-of-nobody") if wants_one == locks.release else (PAIR,)
        with pytest.raises(InvalidRequest, match=r"^name: must be one name; .* use hold_all"):
            wants_one(*arguments)
    assert locks.table.requests == []
