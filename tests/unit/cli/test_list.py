"""`fairlock ls`: what is in use, at every width, in a pipe, and as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
import unicodedata
from collections.abc import Callable
from typing import Any, cast

import pytest
from rich.cells import cell_len

from fairlock import LockClient, LockWaitTimeout
from fairlock.cli import exit_codes, lines, listing, main
from fairlock.cli.lines import details
from fairlock.cli.listing import list_locks
from fairlock.client.arguments import default_owner_name
from fairlock.testing.fake_table import MemoryTable
from fairlock.text import printable
from testbed.localaws import LocalAws
from tests.support import LOCK, FakeClock, Operations, acquire, release, store_over
from tests.support.bad_inputs import VALID_EXECUTION
from tests.unit.cli.conftest import PLACE, client_of, pipe, shown_lines, terminal, text_of
from tests.unit.cli.fleet import SECONDS, TABLE, Fleet, until
from tests.unit.client.doubles import Table

EVIL = "anna\x1b[2J\x9b31m\N{RIGHT-TO-LEFT OVERRIDE}\r[bold]\N{ZERO WIDTH SPACE}"
LONG = "customer/" + "x" * 200
WIDE = "\N{CJK UNIFIED IDEOGRAPH-65E5}" * 60


@pytest.fixture
def listed_table(clock: FakeClock) -> Table:
    """Locks that are held, waited for, free, overdue, and called names of all kinds."""
    listed_table = Table()
    store = store_over(listed_table.memory, clock)
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
    return listed_table


@pytest.fixture
def lister(listed_table: Table, clock: FakeClock) -> LockClient:
    return client_of(listed_table, clock)


def listed(lister: LockClient, console: Any, **options: Any) -> list[str]:  # noqa: ANN401 - of list_locks
    wanted = {"prefix": None, "waiting": False, "free": False, "as_json": False, **options}
    assert list_locks(lister, console, PLACE, **wanted) == 0
    return shown_lines(console)


def test_a_row_tells_who_holds_since_when_and_who_waits(lister: LockClient) -> None:
    head, row = listed(lister, terminal(80), prefix="orders/")
    assert head.split() == ["lock", "held", "holder", "since", "lease", "waiting", "longest"]
    assert row.split() == ["orders/1", "1/1", "anna", "31s", "30s", "2", "31s"]
    _, overdue = listed(lister, terminal(80), prefix="overdue")
    assert overdue.split() == ["overdue", "1/1", "anna", "1h", "00m", "over"]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_lost(
    lister: LockClient, width: int
) -> None:
    found = listed(lister, terminal(width))
    assert max(map(cell_len, found)) <= width
    names = "".join(line[: line.find(" ")] if " " in line else line for line in found)
    assert "x" * 200 in names
    assert unicodedata.normalize("NFC", WIDE) in names


def test_without_folding_a_long_name_would_be_cut(
    lister: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    monkeypatch.setattr(lines, "printable", lambda text: text[:10])
    assert "x" * 200 not in "".join(listed(lister, terminal(80)))


def test_names_of_others_command_no_terminal(
    lister: LockClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither escapes nor rich's markup; the control takes the protection away."""
    console = terminal(120)
    listed(lister, console, prefix="[red]")
    assert "[red]evil[/red]" in text_of(console)
    assert r"anna\x1b[2J\x9b31m\u202e\r[bold]" in text_of(console)
    assert "\x1b[2J" not in text_of(console)
    monkeypatch.setattr(lines, "printable", lambda text: text)
    console = terminal(120)
    listed(lister, console, prefix="[red]")
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" in text_of(console)


def test_free_locks_are_listed_on_request_and_waited_for_ones_alone(lister: LockClient) -> None:
    def first_words(**options: bool) -> set[str]:
        return {line.split()[0] for line in listed(lister, terminal(200), **options)[1:] if line}

    assert "free" in first_words(free=True)
    assert "free" not in first_words()
    assert {"overdue", "sem", "orders/1"} <= first_words()
    assert first_words(waiting=True) == {"orders/1"}


def test_nothing_in_use_is_said_on_a_terminal_only(clock: FakeClock) -> None:
    lister = client_of(Table(), clock)
    right = f"in {PLACE}"
    assert listed(lister, terminal(120)) == [f"no lock is held or waited for {right}"]
    assert listed(lister, terminal(120), waiting=True) == [f"no lock is waited for {right}"]
    named = "no lock whose name begins with 'a/' is held or waited for"
    assert listed(lister, terminal(120), prefix="a/") == [f"{named} {right}"]
    assert listed(lister, pipe()) == []
    assert listed(lister, pipe(), as_json=True) == []


def test_in_a_pipe_each_lock_is_one_line_of_fields(lister: LockClient) -> None:
    [orders] = listed(lister, pipe(), prefix="orders/")
    name, held, owner, since, ends, waiting, oldest = orders.split("\t")
    assert (name, held, owner, waiting) == ("orders/1", "held by 1 of 1", "anna", "2 waiting")
    assert since == oldest < ends
    found = listed(lister, pipe())
    assert len(found) == 6
    assert any("y" * 300 in line for line in found)


def test_json_is_one_object_a_line_with_the_documented_fields(lister: LockClient) -> None:
    found = [json.loads(line) for line in listed(lister, terminal(80), as_json=True)]
    assert len(found) == 6
    orders = next(lock for lock in found if lock["lock_name"] == "orders/1")
    assert set(orders) == {
        *("lock_name", "seen_at", "limit", "holders", "waiters", "last_forced_release"),
        *("newest", "ceiling"),
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
    listed_table = Table()
    store = store_over(listed_table.memory, clock)
    for number in range(5):
        store.acquire(acquire("anna", lock_name=f"a{number}"))
    found = listed(client_of(listed_table, clock), terminal(80))
    assert [line.split()[0] for line in found] == ["lock", "a0", "a1", "a2", "a3", "a4"]


# `fairlock show`: who holds a lock and who waits, without their proofs of ownership.


@pytest.fixture
def show(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    for name, value in {**aws.environment, "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)

    def shown(lock_name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fairlock", "show", lock_name, "--table", TABLE])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return shown


def test_holders_and_waiters_are_shown_and_owner_ids_are_not(
    show: Callable[[str], str], locks: LockClient, fleet: Fleet
) -> None:
    def wait() -> None:
        locks.acquire("shown", owner_name="berta", max_wait=SECONDS).release()

    waiter = threading.Thread(target=wait)
    with locks.hold("shown", owner_name="[bold]anna[/bold]", data={"job": 7}) as lock:
        waiter.start()
        until(lambda: fleet.waiters("shown") == 1)
        lines = show("shown").splitlines()
    waiter.join(SECONDS)
    assert not waiter.is_alive()
    assert [line for line in lines if "since" not in line and "lease ends" not in line] == [
        "shown: held by 1 of 1, 1 waiting",
        "holder",
        "  owner: [bold]anna[/bold]",
        f"  fencing token: {lock.fencing_token}",
        '  data: {"job":7}',
        "waiter 1 of 1",
        "  owner: berta",
        "  limit: 1",
    ]
    assert lock.owner_id not in "".join(lines)
    assert show("shown") == "shown: free, 0 waiting\n"


def test_the_end_of_a_workflows_lease_is_explained_and_that_of_a_process_is_not(
    store: Operations, table: Table, clock: FakeClock
) -> None:
    """A workflow that runs does not renew: to read "over" as "dead" would be wrong."""
    store.acquire(acquire("workflow", limit=2, execution_arn=VALID_EXECUTION))
    store.acquire(acquire("process", limit=2))
    with client_of(table, clock) as locks:
        early = locks.describe(LOCK)
        clock.advance(3600)
        late = locks.describe(LOCK)
    assert early is not None
    assert late is not None
    assert "over" not in "".join(details(early))
    over = {line.partition("Z ")[2] for line in details(late) if "lease ends" in line}
    assert over == {
        "(over)",
        "(over: the next caller extends it if this execution runs, or else takes the lock)",
    }


def test_readers_are_shown_as_readers(show: Callable[[str], str], locks: LockClient) -> None:
    with locks.hold("shown shared", shared=True):
        lines = show("shown shared").splitlines()
    assert lines[0] == "shown shared: held by 1 reader of 20, 0 waiting"
    assert "  shared: yes" in lines


# What others have stored cannot command the terminal on which it is shown.

CLEAR_SCREEN = "\x1b[2J"
OTHER_DIRECTION = "\N{RIGHT-TO-LEFT OVERRIDE}"
INVISIBLE = "\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}"
HOSTILE = f"anna{CLEAR_SCREEN}\x9b31m{OTHER_DIRECTION}\r{INVISIBLE}"
Output = pytest.CaptureFixture[str]


@pytest.fixture
def hostile_table() -> MemoryTable:
    """A lock whose holder and waiter have labels and data that not Fairlock has written."""
    hostile_table, data = MemoryTable(), json.dumps({"why": HOSTILE}, ensure_ascii=False)
    store = store_over(hostile_table, FakeClock())
    store.acquire(acquire("anna", owner_name=HOSTILE, data=data))
    store.acquire(acquire("ben", owner_name=HOSTILE, waits=True))
    return hostile_table


def show_lock(table: MemoryTable, lock_name: str = LOCK) -> int:
    with LockClient("locks", client=cast("Any", table), clock=FakeClock()) as locks:
        return listing.show(locks, "lock table 'locks'", lock_name)


def commands(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}]


def test_show_prints_no_character_that_a_terminal_obeys(
    hostile_table: MemoryTable, capsys: Output
) -> None:
    assert show_lock(hostile_table) == 0
    output = capsys.readouterr().out
    assert output.count(r"owner: anna\x1b[2J\x9b31m\u202e\r\u200b\u2028") == 2
    assert r"\u202e" in output.split("data: ")[1]
    assert commands(output) == []


def test_data_that_is_no_json_is_shown_as_it_is_stored_and_commands_nothing(
    capsys: Output,
) -> None:
    hostile_table = MemoryTable()
    store_over(hostile_table, FakeClock()).acquire(acquire("anna", data="{" + HOSTILE))
    assert show_lock(hostile_table) == 0
    output = capsys.readouterr().out
    assert r"data: {anna\x1b[2J" in output
    assert commands(output) == []


def test_show_without_its_protection_would_clear_the_screen(
    hostile_table: MemoryTable, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "printable", lambda text: text)
    show_lock(hostile_table)
    output = capsys.readouterr().out
    assert {"\x9b", "\r", OTHER_DIRECTION, "\N{ZERO WIDTH SPACE}"} <= set(commands(output))


def test_the_name_of_the_holder_in_a_message_is_printable_too(
    hostile_table: MemoryTable, capsys: Output
) -> None:
    with LockClient("locks", client=cast("Any", hostile_table), clock=FakeClock()) as locks:
        with pytest.raises(LockWaitTimeout) as caught:
            locks.acquire(LOCK, max_wait=0)
        assert commands(str(caught.value)) == []
        assert caught.value.holders[0].owner_name == HOSTILE, "the attribute is what was stored"
    exit_codes.say(f"told: {HOSTILE}")
    assert commands(capsys.readouterr().err) == []


def test_a_lock_that_no_one_has_used_has_a_status_of_its_own(capsys: Output) -> None:
    assert show_lock(MemoryTable(), "mispelt") == exit_codes.UNKNOWN_LOCK == 66
    told = capsys.readouterr()
    assert told.err.startswith("fairlock: lock table 'locks' knows no lock 'mispelt': it was")
    assert told.out == ""


def test_an_owner_without_a_name_is_said_to_have_none(capsys: Output) -> None:
    hostile_table = MemoryTable()
    store_over(hostile_table, FakeClock()).acquire(acquire("anna", owner_name=""))
    assert show_lock(hostile_table) == 0
    assert "  owner: (no name)\n" in capsys.readouterr().out


@pytest.mark.parametrize("letter", ["a", "ß", "日", "😀", " ", "\u0301", "\\"])
def test_what_is_harmless_is_shown_as_it_is(letter: str) -> None:
    assert printable(letter) == letter


def test_a_lone_surrogate_is_shown_as_its_escape() -> None:
    assert printable("a\ud800") == r"a\ud800"


def test_the_label_of_the_command_line_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: f"host{CLEAR_SCREEN}")
    assert commands(default_owner_name(f"program{OTHER_DIRECTION}")) == []


@pytest.mark.parametrize("error", [OSError("no name"), UnicodeDecodeError("idna", b"", 0, 1, "?")])
def test_a_machine_without_a_name_is_no_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> str:
        raise error

    monkeypatch.setattr("socket.gethostname", fail)
    assert default_owner_name("program") == f"unknown-host:{os.getpid()}:program"
