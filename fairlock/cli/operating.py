"""The commands by which people see locks, free them, and limit or pause them."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from fairlock.cli import exit_codes
from fairlock.cli.doctor import doctor
from fairlock.cli.endings import Command
from fairlock.cli.exit_codes import end
from fairlock.cli.intervene import (
    ForcedRelease,
    ask_at_the_terminal,
    change_ceiling,
    empty_queue,
    force_release,
    release_own,
)
from fairlock.cli.lines import screen
from fairlock.cli.listing import list_locks, reader, show, watch
from fairlock.cli.target import AsJson, LockName, Prefix, Target, about_a_table, caller, time_option
from fairlock.client.table_client import require_limit
from fairlock.clock import SystemClock

_FROM_INPUT: Final = "-"

commands = typer.Typer(rich_markup_mode=None)


@commands.command("ls", cls=Command)
@about_a_table()
def list_command(
    target: Target,
    *,
    prefix: Prefix = None,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only locks that others wait for.")
    ] = False,
    free: Annotated[
        bool, typer.Option("--free", help="Free locks too, as long as the table knows them.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Lists the locks that are held or waited for. Reads the whole table, whatever the prefix."""
    with target.locks() as locks:
        return list_locks(
            locks,
            screen(),
            target.place(),
            prefix=prefix,
            waiting=waiting,
            free=free,
            as_json=as_json,
        )


@commands.command("show", cls=Command)
@about_a_table()
def show_command(target: Target, name: LockName, *, as_json: AsJson = False) -> int:
    """Shows who holds a lock, and who waits for it."""
    with target.locks() as locks:
        return show(locks, target.place(), name, as_json=as_json)


@commands.command("watch", cls=Command)
@about_a_table()
def watch_command(
    target: Target,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Locks; none for all in use.")
    ] = None,
    *,
    prefix: Prefix = None,
    every: Annotated[float, time_option("Time between two readings.", least=0.5)] = 5,
    as_json: AsJson = False,
) -> int:
    """Shows locks, and updates the list until Ctrl-C.

    Without names it reads the whole table each time. If the output is no
    terminal, or with --json, it prints a line for each change.
    """
    with target.locks() as locks:
        read = reader(locks, names or (), prefix)
        return watch(read, screen(), SystemClock(), every=every, as_json=as_json)


@commands.command("release", cls=Command)
@about_a_table()
def release_command(
    target: Target,
    name: LockName,
    *,
    owner: Annotated[
        str | None,
        typer.Option(metavar="OWNER_ID", help="Release as its owner; - reads the id from input."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Release another's lock, after asking.")
    ] = False,
    token: Annotated[
        int | None, typer.Option(help="With --force: the fencing token of one of several holders.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="With --force: why; others see it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --force: do not ask.")] = False,
    as_json: AsJson = False,
) -> int:
    """Releases a lock, as its owner or by force.

    By force it releases the grant that was shown, or nothing. The oldest waiter gets the lock.

    The work of the former holder is not stopped. The lock's item records who released it and why.
    """
    if (owner is None) is not force:
        end(exit_codes.USAGE, "give either --owner, or --force")
    if owner is not None:
        if owner == _FROM_INPUT:
            owner = "" if sys.stdin is None else sys.stdin.readline().strip()
        with target.locks() as locks:
            return release_own(locks, name, owner, as_json=as_json)
    wanted = ForcedRelease(
        name=name,
        fencing_token=token,
        reason=reason,
        yes=yes,
        as_json=as_json,
        ask=ask_at_the_terminal(),
        requested_by=lambda: caller(target),
    )
    with target.locks() as locks:
        return force_release(locks, target.place(), wanted)


_Reason = Annotated[str, typer.Option(help="The reason, which waiters see.")]


@commands.command("limit", cls=Command)
@about_a_table()
def limit_command(
    target: Target,
    name: LockName,
    limit: Annotated[int, typer.Argument(metavar="N", help="How many may hold the lock.")],
    *,
    reason: _Reason,
    as_json: AsJson = False,
) -> int:
    """Lets at most N hold a lock.

    This applies until `fairlock resume`, whatever limits callers name. Holders continue. It
    replaces an earlier limit or pause.
    """
    require_limit(limit)
    with target.locks() as locks:
        who = caller(target)
        return change_ceiling(locks, name, limit, reason=reason, requested_by=who, as_json=as_json)


@commands.command("pause", cls=Command)
@about_a_table()
def pause_command(
    target: Target, name: LockName, *, reason: _Reason, as_json: AsJson = False
) -> int:
    """Keeps all callers from a lock.

    This applies until `fairlock resume`. Callers wait meanwhile, and holders continue. It replaces
    an earlier limit, and `resume` does not bring that back.
    """
    with target.locks() as locks:
        who = caller(target)
        return change_ceiling(locks, name, 0, reason=reason, requested_by=who, as_json=as_json)


@commands.command("resume", cls=Command)
@about_a_table()
def resume_command(
    target: Target, name: LockName, *, reason: _Reason = "resumed", as_json: AsJson = False
) -> int:
    """Ends a pause or a limit.

    The lock is handed over to those who wait.
    """
    with target.locks() as locks:
        who = caller(target)
        return change_ceiling(locks, name, None, reason=reason, requested_by=who, as_json=as_json)


@commands.command("empty-queue", cls=Command)
@about_a_table()
def empty_queue_command(
    target: Target,
    name: LockName,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> int:
    """Removes all waiters of a lock, after asking.

    Use it for a queue of callers that never ask again. Those that do ask again wait again: a
    program at the end of the queue, a workflow in its own place. The holders stay.
    """
    with target.locks() as locks:
        ask = ask_at_the_terminal()
        return empty_queue(locks, target.place(), name, yes=yes, ask=ask, as_json=as_json)


@commands.command("doctor", cls=Command)
@about_a_table()
def doctor_command(target: Target, *, as_json: AsJson = False) -> int:
    """Checks the table, the clock and your permissions.

    It writes nothing: a permission to write is tried on an item that does not exist.
    """
    return doctor(target, screen(), SystemClock(), as_json=as_json)
