"""The commands by which people see locks, free them, limit or pause them, and empty queues."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final

import typer

from fairlock.cli import exit_codes, lines
from fairlock.cli.doctor import doctor
from fairlock.cli.exit_codes import Command
from fairlock.cli.lines import screen
from fairlock.cli.listing import list_locks, reader, show, unknown, watch
from fairlock.cli.target import AsJson, LockName, Prefix, Target, about_a_table, caller, time_option
from fairlock.client.lock_client import LockClient
from fairlock.client.table_client import require_limit
from fairlock.clock import SystemClock, iso
from fairlock.errors import DescribedHolder, FairlockError
from fairlock.protocol.description import LockDescription
from fairlock.text import printable

_NO_REASON: Final = "no reason given"
_SHOWN: Final = 5


Ask = Callable[[str], bool] | None
"""Asks the person at the terminal; None if there is none to ask."""


def release_own(locks: LockClient, name: str, owner_id: str, *, as_json: bool = False) -> int:
    """Releases the lock for the owner that the owner_id proves; returns the exit status."""
    released = locks.release(name, owner_id)
    if as_json:
        typer.echo(json.dumps({"lock_name": name, "released": released}))
    elif released:
        typer.echo(f"{printable(name)}: released")
    if released:
        return 0
    exit_codes.say(f"lock {name!r} is not held by this owner: nothing was released")
    return exit_codes.LOST


def force_release(
    locks: LockClient,
    place: str,
    name: str,
    *,
    fencing_token: int | None,
    reason: str | None,
    requested_by: Callable[[], str],
    yes: bool,
    ask: Ask,
    as_json: bool = False,
) -> int:
    """Shows the holder, asks, and releases the grant that was shown; returns the exit status."""
    found = locks.describe(name)
    if found is None:
        return unknown(place, name)
    if not found.holders:
        exit_codes.say(f"lock {name!r} is free: there is nothing to release")
        return exit_codes.UNKNOWN_LOCK
    holder = _choose(found, fencing_token)
    if holder is None:
        return _tell_holders(found, fencing_token)
    exit_codes.say(f"lock {name!r} of {place} is held by")
    for line in lines.details_of_holder(holder, seen_at=found.seen_at):
        exit_codes.say(line)
    waits = "the oldest waiter gets the lock" if found.waiters.count else "no one waits"
    question = f"Release it by force? Its work is not stopped by this; {waits}."
    if not _is_confirmed(question, yes=yes, ask=ask):
        return exit_codes.DECLINED
    who = requested_by()
    locks.force_release(name, holder=holder, reason=reason or _NO_REASON, requested_by=who)
    fields = {"released": True, "fencing_token": holder.fencing_token}
    return _done(locks, name, "released by force", as_json=as_json, **fields)


def _choose(found: LockDescription, fencing_token: int | None) -> DescribedHolder | None:
    """The holder that is meant; None if that is not clear, or if it is gone."""
    if fencing_token is None:
        return found.holders[0] if len(found.holders) == 1 else None
    return next((h for h in found.holders if h.fencing_token == fencing_token), None)


def _tell_holders(found: LockDescription, fencing_token: int | None) -> int:
    for holder in found.holders:
        owner = lines.name_of(holder.owner_name)
        exit_codes.say(f"--token {holder.fencing_token}: {owner}, {iso(holder.acquired_at)}")
    if fencing_token is None:
        exit_codes.end(exit_codes.USAGE, f"{len(found.holders)} hold it: name one by --token")
    exit_codes.say(f"no holder has the fencing token {fencing_token}: nothing was released")
    return exit_codes.HOLDER_CHANGED


def _is_confirmed(question: str, *, yes: bool, ask: Ask) -> bool:
    if yes:
        return True
    if ask is None:
        exit_codes.end(exit_codes.USAGE, "there is no terminal to ask on: give --yes")
    return ask(question)


def empty_queue(
    locks: LockClient, place: str, name: str, *, yes: bool, ask: Ask, as_json: bool = False
) -> int:
    """Shows who waits, asks, and removes all that wait; returns the exit status."""
    found = locks.describe(name)
    if found is None:
        return unknown(place, name)
    waiting = found.waiters
    exit_codes.say(f"{waiting.count} wait for lock {name!r} of {place}")
    for each in waiting.first[:_SHOWN]:
        exit_codes.say(f"  {lines.name_of(each.owner_name)}, since {iso(each.entered_at)}")
    if not _is_confirmed("Remove all of them? Those that ask again wait again.", yes=yes, ask=ask):
        return exit_codes.DECLINED
    removed = locks.empty_queue(name)
    return _done(locks, name, f"removed {removed} waiters", as_json=as_json, removed=removed)


def change_ceiling(
    locks: LockClient, name: str, limit: int | None, *, as_json: bool = False, **why: str
) -> int:
    """Limits, pauses (0) or resumes (None) a lock; returns the exit status."""
    if limit is None:
        locks.resume(name, **why)
    elif limit:
        locks.set_limit(name, limit, **why)
    else:
        locks.pause(name, **why)
    done = {None: "resumed", 0: "paused"}.get(limit, f"limited to {limit}")
    return _done(locks, name, done, as_json=as_json, limit=limit)


def _done(locks: LockClient, name: str, done: str, *, as_json: bool, **fields: object) -> int:
    """Prints an object, or what was done and how the lock is now; the status is 0 in any case."""
    if as_json:
        typer.echo(json.dumps({"lock_name": name, **fields}))
        return 0
    after = None
    with suppress(FairlockError):  # What was done stands, whether that can be read or not.
        after = locks.describe(name)
    now = "" if after is None else lines.state_of(after)
    typer.echo(f"{printable(name)}: {done}; {now}")
    return 0


def ask_at_the_terminal() -> Ask:
    """None if the input is no terminal, or closed."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None
    return lambda question: typer.confirm(question, default=False, err=True)


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
        exit_codes.end(exit_codes.USAGE, "give either --owner, or --force")
    if owner == _FROM_INPUT:
        owner = "" if sys.stdin is None else sys.stdin.readline().strip()
    with target.locks() as locks:
        if owner is not None:
            return release_own(locks, name, owner, as_json=as_json)
        return force_release(
            locks,
            target.place(),
            name,
            fencing_token=token,
            reason=reason,
            requested_by=lambda: caller(target),
            yes=yes,
            ask=ask_at_the_terminal(),
            as_json=as_json,
        )


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
    return _change(target, name, limit, reason, as_json=as_json)


@commands.command("pause", cls=Command)
@about_a_table()
def pause_command(
    target: Target, name: LockName, *, reason: _Reason, as_json: AsJson = False
) -> int:
    """Keeps all callers from a lock.

    This applies until `fairlock resume`. Callers wait meanwhile, and holders continue. It replaces
    an earlier limit, and `resume` does not bring that back.
    """
    return _change(target, name, 0, reason, as_json=as_json)


@commands.command("resume", cls=Command)
@about_a_table()
def resume_command(
    target: Target, name: LockName, *, reason: _Reason = "resumed", as_json: AsJson = False
) -> int:
    """Ends a pause or a limit.

    The lock is handed over to those who wait.
    """
    return _change(target, name, None, reason, as_json=as_json)


def _change(target: Target, name: str, limit: int | None, reason: str, *, as_json: bool) -> int:
    with target.locks() as locks:
        why = {"reason": reason, "requested_by": caller(target)}
        return change_ceiling(locks, name, limit, as_json=as_json, **why)


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
