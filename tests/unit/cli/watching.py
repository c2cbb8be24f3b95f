"""What the kernel and the table say about a command and its lock."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Fleet, until


def state_of(pid: Path) -> str:
    """The state of the process whose number the file tells: T if it is stopped."""
    status = Path(f"/proc/{pid.read_text().strip()}/stat").read_text()
    return status.rpartition(")")[2].split()[0]


def until_renewed(fleet: Fleet, name: str) -> None:
    """Twice from now on, so that one heartbeat that is under way does not count."""
    revision = fleet.state(name).holders[0].revision
    until(lambda: fleet.state(name).holders[0].revision > revision + 1)
