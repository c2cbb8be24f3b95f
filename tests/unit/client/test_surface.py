"""What a lock tells of itself, what each call costs, and what is refused."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlock import InvalidRequest, LockWaitTimeout, composite_name
from fairlock.testing import FakeLockClient
from tests.unit.client.conftest import Near


def test_more_permits_than_fit_into_an_item_are_refused_before_any_write(near: Near) -> None:
    locks = near.client("\u00e9" * 500)
    with pytest.raises(InvalidRequest, match="must be at most 90 "):
        locks.try_acquire("db", limit=91)
    assert near.table.memory.items == {}
    assert locks.try_acquire("db", limit=90) is not None


def test_an_owner_is_named_by_host_and_program(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "worker-3")
    monkeypatch.setattr("sys.argv", ["/srv/billing.py"])
    locks = near.client(owner_name=None)
    assert locks.acquire("a").owner_name == f"worker-3:{os.getpid()}:billing.py"
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "billing")
    assert locks.acquire("b").owner_name == f"worker-3:{os.getpid()}:billing"


def test_the_default_wait_is_that_of_the_client_if_it_has_one(near: Near) -> None:
    assert near.client(max_wait=7).longest_wait(600) == 7
    assert near.client().longest_wait() == 120
    assert near.client(lease=90).longest_wait() == 180
    assert near.client(lease=90).longest_wait(300) == 600


BAD_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("lease", {"lease": 0}),
    ("max_wait", {"max_wait": -1}),
    ("lease", {"lease": 9, "heartbeat_every": 6, "safe_period": 3}),  # Which leaves no room.
    ("lease", {"lease": 9, "safe_period": 9}),
    ("heartbeat_every", {"heartbeat_every": 0}),
    ("clock", {"clock": "sundial"}),
    ("longest_poll", {"longest_poll": 0}),
    ("max_workers", {"max_workers": 0}),
    ("best_effort_release", {"best_effort_release": "x"}),
    ("owner_name", {"owner_name": "a\nb"}),
    ("on_event", {"on_event": 7}),
    *(("table_name", {"table_name": name}) for name in ("", "my locks", None, 7)),
]


@pytest.mark.parametrize(("field", "settings"), BAD_SETTINGS, ids=str)
def test_bad_settings_are_refused_by_name(near: Near, field: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        near.client(**settings)
    assert refused.value.field == field


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_belongs_to_one_process_says_so_when_it_is_copied_or_pickled(
    near: Near, duplicate: Callable[[object], object]
) -> None:
    """As `multiprocessing` does with the arguments of a process that it starts."""
    locks = near.client()
    with pytest.raises(TypeError, match=r"a LockClient cannot be .* pickled: make one in each"):
        duplicate(locks)
    lock = locks.acquire("a")
    with pytest.raises(TypeError, match=r"lock 'a' belongs to this process .* adopt it there"):
        duplicate(lock)
    lock.check()


def test_every_length_of_time_may_be_a_timedelta(near: Near) -> None:
    settings = {"lease": 90, "max_wait": 20, "heartbeat_every": 15, "safe_period": 30}
    lengths: dict[str, Any] = {name: timedelta(seconds=n) for name, n in settings.items()}
    locks = near.client("anna", longest_poll=timedelta(seconds=2), **lengths)
    lock = locks.acquire("a", lease=timedelta(minutes=1), max_wait=timedelta(seconds=0))
    assert (lock.lease, locks.longest_wait(timedelta(minutes=2))) == (60, 20)
    lock.heartbeat(lease=timedelta(minutes=2))
    assert (lock.lease, near.table.state("a").holders[0].lease_ms) == (120, 120_000)
    assert locks.adopt("a", lock.owner_id, lease=timedelta(minutes=3)).lease == 180
    began = near.clock.monotonic()
    with pytest.raises(LockWaitTimeout, match="within 7 s"):
        near.client("ben").acquire("a", max_wait=timedelta(seconds=7))
    assert near.clock.monotonic() - began == pytest.approx(7)


# Names made of parts: no two lists of parts share one.

PARTS = st.lists(st.text("a/%2F", min_size=1, max_size=4), min_size=1, max_size=3)


def test_parts_are_joined_by_slashes() -> None:
    assert composite_name("customer", "7") == "customer/7"
    assert composite_name("a/b", "c%") == "a%2Fb/c%25"


@given(PARTS, PARTS)
def test_other_parts_make_another_name(some: list[str], others: list[str]) -> None:
    assert (composite_name(*some) == composite_name(*others)) == (some == others)


@pytest.mark.parametrize("parts", [(), (7,), (None, "a"), ("a", "b "), ("x" * 513,)])
def test_what_makes_no_name_is_refused(parts: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest):
        composite_name(*parts)


# A member of `class Name(str, Enum)` is text that an f-string shows as something else.


class Name(str, Enum):  # noqa: UP042 - StrEnum has no such text; programs have both
    ORDERS = "orders"
    OWNER = "anna"


def test_a_member_of_an_enumeration_names_the_lock_and_the_owner_of_its_text() -> None:
    locks = FakeLockClient()
    lock = locks.acquire(Name.ORDERS, owner_name=Name.OWNER)
    assert locks.another().try_acquire("orders") is None
    assert [found.name for found in locks.list(prefix=Name.ORDERS)] == ["orders"]
    described = locks.describe(Name.ORDERS)
    assert described is not None
    assert repr(described.holders[0].owner_name) == "'anna'"
    assert locks.adopt(Name.ORDERS, lock.owner_id).fencing_token == lock.fencing_token
    locks.force_release(Name.ORDERS, holder=described.holders[0], reason=Name.OWNER)
    after = locks.describe("orders")
    assert after is not None
    assert after.holders == ()
