"""`fairlock ls`: what is in use, at every width, in a pipe, and as JSON."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from rich.cells import cell_len

from fairlock import LockClient
from fairlock.cli import lines
from fairlock.cli.listing import list_locks
from tests.support import FakeClock, acquire, release, store_over
from tests.unit.cli.support import PLACE, client_of, pipe, shown_lines, terminal, text_of
from tests.unit.client.support.doubles import Table

EVIL = "anna\x1b[2J\x9b31m\N{RIGHT-TO-LEFT OVERRIDE}\r[bold]\N{ZERO WIDTH SPACE}"
LONG = "customer/" + "x" * 200
WIDE = "\N{CJK UNIFIED IDEOGRAPH-65E5}" * 60


@pytest.fixture
def table(clock: FakeClock) -> Table:
    """Locks that are held, waited for, free, overdue, and called names of all kinds."""
    table = Table()
    store = store_over(table.memory, clock)
    store.acquire(acquire("anna", lock_name="overdue", lease_ms=1_000))
    clock.advance(3_600)
    store.acquire(acquire("anna", lock_name="orders/1"))
    for name in ("ben", "carl"):
        store.acquire(acquire(name, lock_name="orders/1", waits=True, waiter_timeout_ms=99_000))
        clock.advance(15)
    for name in ("dora", "emil"):
        store.acquire(acquire(name, lock_name="sem", limit=5))
    store.acquire(acquire("anna", lock_name="free"))
    store.release(release("anna", lock_name="free"))
    store.acquire(acquire("anna", lock_name=LONG, owner_name="y" * 300))
    store.acquire(acquire("anna", lock_name=WIDE, owner_name=WIDE))
    store.acquire(acquire("anna", lock_name="[red]evil[/red]", owner_name=EVIL))
    clock.advance(1)
    return table


@pytest.fixture
def locks(table: Table, clock: FakeClock) -> LockClient:
    return client_of(table, clock)


def listed(locks: LockClient, console: Any, **options: Any) -> list[str]:  # noqa: ANN401 - of list_locks
    wanted = {"prefix": None, "waiting": False, "free": False, "as_json": False, **options}
    assert list_locks(locks, console, PLACE, **wanted) == 0
    return shown_lines(console)


def test_a_row_tells_who_holds_since_when_and_who_waits(locks: LockClient) -> None:
    head, row = listed(locks, terminal(80), prefix="orders/")
    assert head.split() == ["lock", "held", "holder", "since", "lease", "waiting", "longest"]
    assert row.split() == ["orders/1", "1/1", "anna", "31s", "30s", "2", "31s"]
    _, overdue = listed(locks, terminal(80), prefix="overdue")
    assert overdue.split() == ["overdue", "1/1", "anna", "1h", "00m", "over"]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_lost(
    locks: LockClient, width: int
) -> None:
    found = listed(locks, terminal(width))
    assert max(map(cell_len, found)) <= width
    names = "".join(line[: line.find(" ")] if " " in line else line for line in found)
    assert "x" * 200 in names
    assert unicodedata.normalize("NFC", WIDE) in names


def test_without_folding_a_long_name_would_be_cut(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(lines, "printable", lambda text: text[:10])
    assert "x" * 200 not in "".join(listed(locks, terminal(80)))


def test_names_of_others_command_no_terminal(
    locks: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither escapes nor rich's markup; the control takes the protection away."""
    console = terminal(120)
    listed(locks, console, prefix="[red]")
    assert "[red]evil[/red]" in text_of(console)
    assert r"anna\x1b[2J\x9b31m\u202e\r[bold]" in text_of(console)
    assert "\x1b[2J" not in text_of(console)
    monkeypatch.setattr(lines, "printable", lambda text: text)
    console = terminal(120)
    listed(locks, console, prefix="[red]")
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" in text_of(console)


def test_free_locks_are_listed_on_request_and_waited_for_ones_alone(locks: LockClient) -> None:
    def first_words(**options: bool) -> set[str]:
        return {line.split()[0] for line in listed(locks, terminal(200), **options)[1:] if line}

    assert "free" in first_words(free=True)
    assert "free" not in first_words()
    assert {"overdue", "sem", "orders/1"} <= first_words()
    assert first_words(waiting=True) == {"orders/1"}


def test_nothing_in_use_is_said_on_a_terminal_only(clock: FakeClock) -> None:
    locks = client_of(Table(), clock)
    right = f"in {PLACE}"
    assert listed(locks, terminal(120)) == [f"no lock is held or waited for {right}"]
    assert listed(locks, terminal(120), waiting=True) == [f"no lock is waited for {right}"]
    named = "no lock whose name begins with 'a/' is held or waited for"
    assert listed(locks, terminal(120), prefix="a/") == [f"{named} {right}"]
    assert listed(locks, pipe()) == []
    assert listed(locks, pipe(), as_json=True) == []


def test_in_a_pipe_each_lock_is_one_line_of_fields(locks: LockClient) -> None:
    [orders] = listed(locks, pipe(), prefix="orders/")
    name, held, owner, since, ends, waiting, oldest = orders.split("\t")
    assert (name, held, owner, waiting) == ("orders/1", "held by 1 of 1", "anna", "2 waiting")
    assert since == oldest < ends
    found = listed(locks, pipe())
    assert len(found) == 6
    assert any("y" * 300 in line for line in found)


def test_json_is_one_object_a_line_with_the_documented_fields(locks: LockClient) -> None:
    found = [json.loads(line) for line in listed(locks, terminal(80), as_json=True)]
    assert len(found) == 6
    orders = next(lock for lock in found if lock["lock_name"] == "orders/1")
    assert set(orders) == {
        *("lock_name", "seen_at", "limit", "holders", "waiters", "last_forced_release"),
        "newest",
    }
    assert orders["waiters"]["count"] == 2
    assert [waiter["owner_name"] for waiter in orders["waiters"]["first"]] == ["ben", "carl"]
    [holder] = orders["holders"]
    assert set(holder) == {
        *("owner_name", "acquired_at", "expires_at", "lease_seconds", "limit"),
        *("fencing_token", "data", "execution_arn", "shared"),
    }
    assert any(lock["holders"][0]["owner_name"] == EVIL for lock in found), "JSON escapes it"


def test_more_locks_than_a_batch_come_with_one_head(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.cli.listing._BATCH", 2)
    table = Table()
    store = store_over(table.memory, clock)
    for number in range(5):
        store.acquire(acquire("anna", lock_name=f"a{number}"))
    found = listed(client_of(table, clock), terminal(80))
    assert [line.split()[0] for line in found] == ["lock", "a0", "a1", "a2", "a3", "a4"]
