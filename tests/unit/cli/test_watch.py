"""`fairlock watch`: drawn again on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
from rich.console import Console
from rich.text import Text

from fairlock import LockClient, LockDescription
from fairlock.cli.listing import list_locks, reader, watch
from fairlock.clock import Clock
from fairlock.testing import ManualClock
from tests.support import Operations, acquire, release, store_over
from tests.support.clocks import WrongClock
from tests.support.faulty_table import down, lost_reply
from tests.unit.cli.conftest import PLACE, client_of, pipe, shown_lines, terminal, text_of
from tests.unit.client.doubles import Table

Step = Callable[[], object]


def watched(
    lister: LockClient,
    console: Console,
    clock: Clock,
    *steps: Step,
    names: Iterable[str] = (),
    as_json: bool = False,
) -> None:
    """Reads before the first step, and after each."""
    read, rest = reader(lister, list(names), None), list(steps)

    def read_before_step() -> Iterable[LockDescription]:
        try:
            return list(read())
        finally:
            if rest:
                rest.pop(0)()

    times = len(steps) + 1
    assert watch(read_before_step, console, clock, every=5, times=times, as_json=as_json) == 0


@pytest.mark.parametrize("names", [(), ("a",)], ids=["all", "by name"])
def test_in_a_pipe_each_change_is_a_line_and_what_stays_is_none(
    lister: LockClient, store: Operations, clock: ManualClock, names: tuple[str, ...]
) -> None:
    console, noted = pipe(), WrongClock(clock)
    watched(
        *(lister, console, noted),
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
    assert noted.waits == [5] * 5


def test_a_terminal_shows_the_present(
    lister: LockClient, store: Operations, clock: ManualClock
) -> None:
    for width in (80, 120):
        console = terminal(width)
        store.acquire(acquire("anna", lock_name=f"a{width}"))
        watched(lister, console, clock, lambda: store.acquire(acquire("ben", lock_name="b")))
        assert "every 5 s; Ctrl-C ends" in text_of(console)
        assert f"a{width}" in text_of(console)
        assert all(len(line) <= width + 20 for line in shown_lines(console))


CONSOLES = pytest.mark.parametrize("console_of", [pipe, lambda: terminal(200)])


@CONSOLES
def test_a_table_that_does_not_answer_is_told_and_read_again(
    lister: LockClient, table: Table, clock: ManualClock, console_of: Callable[[], Console]
) -> None:
    console = console_of()
    watched(lister, console, clock, lambda: table.will(down(lost_reply())), table.will)
    assert text_of(console).count("no answer: the lock table did not answer") == 1


@CONSOLES
def test_ctrl_c_ends_it_cleanly(
    lister: LockClient, clock: ManualClock, console_of: Callable[[], Console]
) -> None:
    interrupted = Mock(wraps=clock, wait=Mock(side_effect=KeyboardInterrupt))
    assert watch(reader(lister, [], None), console_of(), interrupted, every=5) == 0
    interrupted.wait.assert_called_once_with(5)


@CONSOLES
def test_as_json_each_change_is_an_object_and_a_free_lock_has_no_holders(
    lister: LockClient,
    store: Operations,
    clock: ManualClock,
    console_of: Callable[[], Console],
) -> None:
    console = console_of()
    watched(
        *(lister, console, clock),
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


# What `fairlock watch` shows, as the picture in docs/command-line.md. The locks are in memory.

PICTURE: Final = Path(__file__).resolve().parents[3] / "docs" / "images" / "watch.svg"
_ERASE_LINE: Final = "\x1b[2K"
_SHOW_CURSOR: Final = "\x1b[?25h"
_MACHINE: Final = "arn:aws:states:us-east-1:123456789012:execution:Billing"


def drawn(width: int) -> Text:
    """What it has drawn last on a terminal so wide: each drawing erases the one before."""
    locks, clock = _locks()
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard")
    watch(reader(locks, [], None), console, clock, every=5, times=1)
    last = text_of(console).rpartition(_ERASE_LINE)[2]
    return Text.from_ansi(last.removesuffix(_SHOW_CURSOR).rstrip())


def picture() -> str:
    recorder = Console(file=io.StringIO(), width=80, record=True, force_terminal=True)
    recorder.print(drawn(80))
    svg = recorder.export_svg(title="fairlock watch", unique_id="watch-80")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # From the internet.


def _locks() -> tuple[LockClient, ManualClock]:
    """Held by workflows and processes, waited for, free, and by a holder whose lease is over."""
    table, clock = Table(), ManualClock()
    store = store_over(table.memory, clock)

    def ask(name: str, owner_name: str, **fields: Any) -> None:  # noqa: ANN401 - of the request
        fields = {"lock_name": name, "owner_name": owner_name, **fields}
        store.acquire(acquire(owner_name[-16:], **fields))

    ask("reports/2030-03-17/europe-west/monthly-summary", "worker-3:1:report.py")
    clock.advance(45)
    ask("deploy/production", "build-7:4411:ci", lease_ms=300_000)
    clock.advance(40)
    ask("customer/1234", f"{_MACHINE}:run-1")
    for number in range(2):
        clock.advance(9)
        ask("customer/1234", f"{_MACHINE}:run-{number + 2}", waits=True)
    for number in range(3):
        ask("imports", f"worker-{number}:1:import.py", limit=5)
    clock.advance(3)
    return client_of(table, clock), clock


def test_the_picture_in_the_document_is_what_watch_shows_today() -> None:
    """Run `python -m tests.unit.cli.test_watch` after a change of the table."""
    assert picture() == PICTURE.read_text()


@pytest.mark.parametrize("width", [80, 120])
def test_ls_shows_the_same_rows_as_watch(width: int) -> None:
    console = terminal(width)
    list_locks(_locks()[0], console, PLACE, prefix=None, waiting=False, free=False, as_json=False)
    rows = [line.rstrip() for line in drawn(width).plain.splitlines()]
    assert shown_lines(console) == rows[-len(shown_lines(console)) :]


if __name__ == "__main__":
    PICTURE.write_text(picture())
