"""`fairlock watch`: drawn again on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

import pytest
from rich.console import Console

from fairlock import LockClient, LockDescription
from fairlock.cli.listing import reader, watch
from tests.support import FakeClock, Operations, acquire, release
from tests.support.faulty_table import lost_reply
from tests.unit.cli.support import (
    PICTURE,
    WIDTHS,
    client_of,
    draw,
    pipe,
    shown_lines,
    terminal,
    text_of,
)
from tests.unit.client.support.doubles import Table

Step = Callable[[], object]


@pytest.fixture
def locks(table: Table, clock: FakeClock) -> LockClient:
    return client_of(table, clock)


def watched(
    locks: LockClient,
    console: Console,
    clock: FakeClock,
    *steps: Step,
    names: Iterable[str] = (),
    as_json: bool = False,
) -> None:
    """Reads before the first step, and after each."""
    read, rest = reader(locks, list(names), None), list(steps)

    def read_after_step() -> Iterable[LockDescription]:
        found = list(read())
        if rest:
            rest.pop(0)()
        return found

    times = len(steps) + 1
    assert watch(read_after_step, console, clock, every=5, times=times, as_json=as_json) == 0


@pytest.mark.parametrize("names", [(), ("a",)], ids=["all", "by name"])
def test_in_a_pipe_each_change_is_a_line_and_what_stays_is_none(
    locks: LockClient, store: Operations, clock: FakeClock, names: tuple[str, ...]
) -> None:
    console = pipe()
    watched(
        *(locks, console, clock),
        lambda: store.acquire(acquire("anna", lock_name="a")),
        lambda: None,
        lambda: store.acquire(acquire("ben", lock_name="a", waits=True)),
        lambda: store.release(release("anna", lock_name="a")),
        lambda: store.release(release("ben", lock_name="a")),
        names=names,
    )
    told = [line.split("\t") for line in shown_lines(console)]
    assert [line[1:4] + line[6:7] for line in told][:3] == [
        ["a", "held by 1 of 1", "anna", "0 waiting"],
        ["a", "held by 1 of 1", "anna", "1 waiting"],
        ["a", "held by 1 of 1", "ben", "0 waiting"],
    ]
    assert told[3][1:3] == ["a", "free"]
    assert len(told) == 4
    assert clock.waits == [5] * 5


def test_a_terminal_shows_the_present(
    locks: LockClient, store: Operations, clock: FakeClock
) -> None:
    for width in (80, 120):
        console = terminal(width)
        store.acquire(acquire("anna", lock_name=f"a{width}"))
        watched(locks, console, clock, lambda: store.acquire(acquire("ben", lock_name="b")))
        assert "every 5 s; Ctrl-C ends" in text_of(console)
        assert f"a{width}" in text_of(console)
        assert all(len(line) <= width + 20 for line in shown_lines(console))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_that_does_not_answer_is_told_and_read_again(
    locks: LockClient, store: Operations, table: Table, clock: FakeClock, *, is_terminal: bool
) -> None:
    store.acquire(acquire("anna", lock_name="a"))
    console = terminal(200) if is_terminal else pipe()

    def fail() -> None:
        table.outage = lost_reply()

    def recover() -> None:
        table.outage = None

    read, rest = reader(locks, [], None), [fail, recover]

    def read_before_step() -> Iterable[LockDescription]:
        try:
            return list(read())
        finally:
            if rest:
                rest.pop(0)()

    assert watch(read_before_step, console, clock, every=5, times=3) == 0
    assert text_of(console).count("no answer: the lock table did not answer") == 1


class InterruptedClock(FakeClock):
    """The first wait is ended by Ctrl-C."""

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        raise KeyboardInterrupt


@pytest.mark.parametrize("is_terminal", [False, True])
def test_ctrl_c_ends_it_cleanly(locks: LockClient, *, is_terminal: bool) -> None:
    console, clock = terminal(80) if is_terminal else pipe(), InterruptedClock()
    assert watch(reader(locks, [], None), console, clock, every=5) == 0
    assert clock.waits == [5]


@pytest.mark.parametrize("console", [pipe(), terminal(80)], ids=["pipe", "terminal"])
def test_as_json_each_change_is_an_object_and_a_free_lock_has_no_holders(
    locks: LockClient, store: Operations, clock: FakeClock, console: Console
) -> None:
    watched(
        *(locks, console, clock),
        lambda: store.acquire(acquire("anna", lock_name="a")),
        lambda: None,
        lambda: store.release(release("anna", lock_name="a")),
        as_json=True,
    )
    told = [json.loads(line) for line in text_of(console).splitlines()]
    assert [(one["lock_name"], len(one["holders"]), one["waiters"]["count"]) for one in told] == [
        ("a", 1, 0),
        ("a", 0, 0),
    ]
    assert told[0].keys() == told[1].keys()


# The picture in docs/command-line.md shows what the command shows.


def test_the_picture_in_the_document_is_what_watch_shows_today() -> None:
    """Run `python -m tests.unit.cli.support` after a change of the table."""
    assert draw("watch", 80) == PICTURE.read_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_ls_shows_the_same_rows_as_watch(width: int) -> None:
    cells = ["customer/1234", "Billing:run-1", "1/1", "3/5", "over", "4m&#160;00s"]
    for command in ("ls", "watch"):
        assert [cell for cell in cells if cell not in draw(command, width)] == []
