"""Locks in memory, and consoles whose width is known."""

from __future__ import annotations

import io
from typing import Any, cast

from rich.console import Console

from fairlock import LockClient
from tests.support import FakeClock
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
