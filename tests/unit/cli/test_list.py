"""`fairlock ls` and `show`: at every width, in a pipe, as JSON; and names that command nothing."""

from __future__ import annotations

import json
import os
import unicodedata
from typing import Any
from unittest.mock import Mock

import pytest
from rich.cells import cell_len

from fairlock import LockClient, LockWaitTimeout
from fairlock.cli import exit_codes, lines
from fairlock.cli.lines import details
from fairlock.cli.listing import list_locks
from fairlock.client.arguments import default_owner_name
from fairlock.testing import ManualClock
from fairlock.text import printable
from tests.support import LOCK, Operations, acquire, release
from tests.support.bad_inputs import VALID_EXECUTION
from tests.unit.cli.conftest import PLACE, Run, pipe, shown_lines, terminal, text_of
from tests.unit.client.doubles import Table

LONG = "customer/" + "x" * 200
WIDE = "\N{CJK UNIFIED IDEOGRAPH-65E5}" * 60


@pytest.fixture
def of_all_kinds(store: Operations, clock: ManualClock) -> None:
    """Locks that are held, waited for, free, overdue, and called names of all kinds."""
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
    clock.advance(1)


def listed(lister: LockClient, console: Any, **options: Any) -> list[str]:  # noqa: ANN401 - of list_locks
    wanted = {"prefix": None, "waiting": False, "free": False, "as_json": False, **options}
    assert list_locks(lister, console, PLACE, **wanted) == 0
    return shown_lines(console)


@pytest.mark.usefixtures("of_all_kinds")
def test_a_row_tells_who_holds_since_when_and_who_waits(lister: LockClient) -> None:
    head, row = listed(lister, terminal(80), prefix="orders/")
    assert head.split() == ["lock", "held", "holder", "since", "lease", "waiting", "longest"]
    assert row.split() == ["orders/1", "1/1", "anna", "31s", "30s", "2", "31s"]
    _, overdue = listed(lister, terminal(80), prefix="overdue")
    assert overdue.split() == ["overdue", "1/1", "anna", "1h", "00m", "over"]


@pytest.mark.usefixtures("of_all_kinds")
@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_lost(
    lister: LockClient, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control cuts long names."""
    found = listed(lister, terminal(width))
    assert max(map(cell_len, found)) <= width
    names = "".join(line[: line.find(" ")] if " " in line else line for line in found)
    assert "x" * 200 in names
    assert unicodedata.normalize("NFC", WIDE) in names
    monkeypatch.setattr(lines, "printable", lambda text: text[:10])
    assert "x" * 200 not in "".join(listed(lister, terminal(width)))


@pytest.mark.usefixtures("of_all_kinds")
@pytest.mark.parametrize(("width", "room"), [(80, 15), (99, 22), (100, 29), (120, 39)])
def test_a_long_owner_is_cut_earlier_on_a_narrow_terminal(
    lister: LockClient, width: int, room: int
) -> None:
    row = listed(lister, terminal(width), prefix="customer/")[1]
    assert row.split()[2] == "y" * (room - 1) + "…"


@pytest.mark.usefixtures("of_all_kinds")
def test_free_locks_are_listed_on_request_and_waited_for_ones_alone(lister: LockClient) -> None:
    def first_words(**options: bool) -> set[str]:
        return {line.split()[0] for line in listed(lister, terminal(200), **options)[1:] if line}

    assert "free" in first_words(free=True)
    assert "free" not in first_words()
    assert {"overdue", "sem", "orders/1"} <= first_words()
    assert first_words(waiting=True) == {"orders/1"}


def test_nothing_in_use_is_said_on_a_terminal_only(lister: LockClient) -> None:
    right = f"in {PLACE}"
    assert listed(lister, terminal(120)) == [f"no lock is held or waited for {right}"]
    assert listed(lister, terminal(120), waiting=True) == [f"no lock is waited for {right}"]
    named = "no lock whose name begins with 'a/' is held or waited for"
    assert listed(lister, terminal(120), prefix="a/") == [f"{named} {right}"]
    assert listed(lister, pipe()) == []
    assert listed(lister, pipe(), as_json=True) == []


@pytest.mark.usefixtures("of_all_kinds")
def test_in_a_pipe_each_lock_is_one_line_of_fields(fairlock: Run) -> None:
    orders = fairlock("ls --prefix orders/").out
    name, held, owner, since, ends, waiting, oldest = orders.rstrip().split("\t")
    assert (name, held, owner, waiting) == ("orders/1", "held by 1 of 1", "anna", "2 waiting")
    assert since == oldest < ends
    found = fairlock("ls").out
    assert (found.count("\n"), "y" * 300 in found) == (5, True)


@pytest.mark.usefixtures("of_all_kinds")
def test_json_is_one_object_a_line_with_the_documented_fields(fairlock: Run) -> None:
    found = [json.loads(line) for line in fairlock("ls --json").out.splitlines()]
    assert len(found) == 5
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
    assert json.loads(fairlock("show orders/1 --json").out) == orders


def test_more_locks_than_a_batch_come_with_one_head(
    lister: LockClient, store: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.cli.listing._BATCH", 2)
    for number in range(5):
        store.acquire(acquire("anna", lock_name=f"a{number}"))
    found = listed(lister, terminal(80))
    assert [line.split()[0] for line in found] == ["lock", "a0", "a1", "a2", "a3", "a4"]


def test_the_table_of_a_terminal_tells_a_paused_lock_from_a_free_one(
    lister: LockClient, store: Operations
) -> None:
    store.acquire(acquire("anna", lock_name="held", limit=3))
    for name in ("held", "idle"):
        lister.pause(name, reason="freeze")
    held, idle = listed(lister, terminal(100))[1:]
    assert held.split()[:2] == ["held", "1/0"]
    assert idle.split() == ["idle", "paused"]


# `fairlock show`: who holds a lock and who waits, without their proofs of ownership.


def test_holders_and_waiters_are_shown_whatever_the_width_and_owner_ids_are_not(
    fairlock: Run, store: Operations, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    held = {"owner_name": "[bold]anna[/bold]", "data": '{"job":7,"of":"the 17th of March 2030"}'}
    store.acquire(acquire("anna", **held))
    store.acquire(acquire("berta", waits=True))
    output = fairlock(f"show {LOCK}").out
    [holder] = table.state(LOCK).holders
    told = output.splitlines()
    assert [line for line in told if "since" not in line and "lease ends" not in line] == [
        f"{LOCK}: held by 1 of 1, 1 waiting",
        "holder",
        "  owner: [bold]anna[/bold]",
        f"  fencing token: {holder.fencing_token}",
        '  data: {"job":7,"of":"the 17th of March 2030"}',
        "waiter 1 of 1",
        "  owner: berta",
        "  limit: 1",
    ]
    assert holder.owner_id not in output


def test_a_free_lock_a_reader_and_an_owner_without_a_name_are_shown_as_such(
    fairlock: Run, store: Operations
) -> None:
    store.acquire(acquire("anna", shared=True, limit=20, owner_name=""))
    told = fairlock(f"show {LOCK}").out.splitlines()
    assert told[0] == f"{LOCK}: held by 1 reader of 20, 0 waiting"
    assert {"  shared: yes", "  owner: (no name)"} <= {*told}
    store.release(release("anna"))
    assert fairlock(f"show {LOCK}").out == f"{LOCK}: free, 0 waiting\n"


def test_a_lock_that_no_one_has_used_has_a_status_of_its_own(fairlock: Run) -> None:
    status, output, errors = fairlock("show mispelt")
    assert (status, output) == (exit_codes.UNKNOWN_LOCK, "")
    assert errors.startswith(f"fairlock: {PLACE} knows no lock 'mispelt': it was")


def test_the_end_of_a_workflows_lease_is_explained_and_that_of_a_process_is_not(
    store: Operations, lister: LockClient, clock: ManualClock
) -> None:
    """A workflow that runs does not renew: to read "over" as "dead" would be wrong."""
    store.acquire(acquire("workflow", limit=2, execution_arn=VALID_EXECUTION))
    store.acquire(acquire("process", limit=2))
    early = lister.describe(LOCK)
    clock.advance(3600)
    late = lister.describe(LOCK)
    assert early is not None
    assert late is not None
    assert "over" not in "".join(details(early))
    over = {line.partition("Z ")[2] for line in details(late) if "lease ends" in line}
    assert over == {
        "(over)",
        "(over: the next caller extends it if this execution runs, or else takes the lock)",
    }


# What others have stored cannot command the terminal on which it is shown.

CLEAR_SCREEN = "\x1b[2J"
OTHER_DIRECTION = "\N{RIGHT-TO-LEFT OVERRIDE}"
INVISIBLE = "\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}"
HOSTILE = f"anna{CLEAR_SCREEN}\x9b31m{OTHER_DIRECTION}\r[bold]{INVISIBLE}"
ESCAPED = r"anna\x1b[2J\x9b31m\u202e\r[bold]\u200b\u2028"


@pytest.fixture
def hostile(store: Operations) -> None:
    """Locks whose holders and waiters have labels and data that not Fairlock has written."""
    data = json.dumps({"why": HOSTILE}, ensure_ascii=False)
    store.acquire(acquire("anna", owner_name=HOSTILE, data=data))
    store.acquire(acquire("ben", owner_name=HOSTILE, waits=True))
    store.acquire(acquire("carl", lock_name="no JSON", data="{" + HOSTILE))


def commands(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}]


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
@pytest.mark.parametrize(
    ("line", "times"),
    [("ls at a terminal", 1), ("ls", 1), (f"show {LOCK}", 2), ("show 'no JSON'", 1)],
)
def test_nothing_is_shown_that_a_terminal_obeys(
    line: str,
    times: int,
    fairlock: Run,
    lister: LockClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    protected: bool,
) -> None:
    if not protected:
        monkeypatch.setattr(lines, "printable", lambda text: text)
    if line.endswith("terminal"):
        console = terminal(200)
        listed(lister, console)
        told = text_of(console)
    else:
        told = fairlock(line).out.replace("\t", " ")
    assert told.count(ESCAPED) == (times if protected else 0)
    assert (commands(told) == []) is protected


@pytest.mark.usefixtures("hostile")
def test_the_json_of_ls_escapes_what_a_terminal_obeys(fairlock: Run) -> None:
    told = fairlock("ls --json").out
    assert commands(told) == []
    assert HOSTILE in {json.loads(line)["holders"][0]["owner_name"] for line in told.splitlines()}


@pytest.mark.usefixtures("hostile")
def test_the_name_of_the_holder_in_a_message_is_printable_too(
    lister: LockClient, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LockWaitTimeout) as caught:
        lister.acquire(LOCK, max_wait=0)
    assert commands(str(caught.value)) == []
    assert caught.value.holders[0].owner_name == HOSTILE, "the attribute is what was stored"
    exit_codes.say(f"told: {HOSTILE}")
    assert commands(capsys.readouterr().err) == []


def test_what_is_harmless_is_shown_as_it_is_and_a_lone_surrogate_as_its_escape() -> None:
    harmless = ["a", "ß", "日", "😀", " ", "\u0301", "\\"]
    assert [*map(printable, harmless)] == harmless
    assert printable("a\ud800") == r"a\ud800"


@pytest.mark.parametrize("error", [OSError("no name"), UnicodeDecodeError("idna", b"", 0, 1, "?")])
def test_the_label_of_the_command_line_is_printable_and_needs_no_name_of_the_machine(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: f"host{CLEAR_SCREEN}")
    assert commands(default_owner_name(f"program{OTHER_DIRECTION}")) == []
    monkeypatch.setattr("socket.gethostname", Mock(side_effect=error))
    assert default_owner_name("program") == f"unknown-host:{os.getpid()}:program"
