"""Locks in memory, and consoles whose width is known."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console
from rich.text import Text

from fairlock import LockClient
from fairlock.cli.listing import list_locks, reader, watch
from tests.support import FakeClock, Operations, acquire, store_over
from tests.unit.client.support.doubles import Table

PLACE = "lock table 'locks' in us-east-1"


def client_of(table: Table, clock: FakeClock, name: str = "olga") -> LockClient:
    """A client without heartbeats of its own."""
    settings: dict[str, Any] = {"client": cast("Any", table), "clock": clock, "owner_name": name}
    return LockClient("locks", **settings, heartbeat_every=float("inf"))


def terminal(width: int) -> Console:
    """A terminal so wide, whose output `text_of` tells."""
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def pipe() -> Console:
    """No terminal."""
    return Console(file=io.StringIO(), width=80)


def text_of(console: Console) -> str:
    """What was printed there, without the codes that move the cursor."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def shown_lines(console: Console) -> list[str]:
    return [line.rstrip() for line in text_of(console).splitlines()]


# `python -m tests.unit.cli.pictures`: what `fairlock ls` and `watch` show, as pictures.
#
# The commands draw on a terminal in memory; the locks are in memory. Only the picture in
# docs/command-line.md is kept; `--all FOLDER` writes one for each command and width, to look at.

PICTURE: Final = Path(__file__).resolve().parents[3] / "docs" / "images" / "watch.svg"
WIDTHS: Final = (80, 120)
_ERASE_LINE: Final = "\x1b[2K"
_SHOW_CURSOR: Final = "\x1b[?25h"
_MACHINE: Final = "arn:aws:states:us-east-1:123456789012:execution:Billing"


def draw(command: str, width: int) -> str:
    """A picture of the command on a terminal so wide, as SVG."""
    locks, clock = _locks()
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system="standard")
    if command == "ls":
        list_locks(locks, console, PLACE, prefix=None, waiting=False, free=False, as_json=False)
    else:
        watch(reader(locks, [], None), console, clock, every=5, times=1)
    # Each drawing of `watch` erases the one before, line by line.
    last = screen.getvalue().rpartition(_ERASE_LINE)[2]
    recorder = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    recorder.print(Text.from_ansi(last.removesuffix(_SHOW_CURSOR).rstrip()))
    picture = recorder.export_svg(title=f"fairlock {command}", unique_id=f"{command}-{width}")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # From the internet.


def _locks() -> tuple[LockClient, FakeClock]:
    """Held by workflows and processes, waited for, free, and by a holder whose lease is over."""
    table, clock = Table(), FakeClock()
    store = store_over(table.memory, clock)
    _hold(store, "reports/2030-03-17/europe-west/monthly-summary", "worker-3:1:report.py")
    clock.advance(45)
    _hold(store, "deploy/production", "build-7:4411:ci", lease_ms=300_000)
    clock.advance(40)
    _hold(store, "customer/1234", f"{_MACHINE}:run-1")
    for number in range(2):
        clock.advance(9)
        _wait(store, "customer/1234", f"{_MACHINE}:run-{number + 2}")
    for number in range(3):
        _hold(store, "imports", f"worker-{number}:1:import.py", limit=5)
    clock.advance(3)
    return client_of(table, clock), clock


def _hold(store: Operations, name: str, owner_name: str, **fields: int) -> None:
    short = owner_name[-16:]
    store.acquire(acquire(short, lock_name=name, **{"owner_name": owner_name, **fields}))


def _wait(store: Operations, name: str, owner_name: str) -> None:
    store.acquire(acquire(owner_name[-16:], lock_name=name, owner_name=owner_name, waits=True))


if __name__ == "__main__":
    PICTURE.write_text(draw("watch", 80))
    if sys.argv[1:2] == ["--all"]:
        for kind in ("ls", "watch"):
            for columns in WIDTHS:
                (Path(sys.argv[2]) / f"{kind}-{columns}.svg").write_text(draw(kind, columns))
