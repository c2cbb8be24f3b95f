"""The commands by which people see locks, free them, limit or pause them, and empty queues."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from fairlock.cli import exit_codes, lines
from fairlock.cli.doctor import doctor
from fairlock.cli.exit_codes import Command, end
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
_NOBODY_TO_ASK: Final = "there is no terminal to ask on: give --yes"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedRelease:
    """The arguments of `fairlock release --force`; without a terminal no one can be asked."""

    name: str
    fencing_token: int | None
    reason: str | None
    yes: bool
    ask: Callable[[str], bool] | None
    requested_by: Callable[[], str]
    as_json: bool = False


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


def force_release(locks: LockClient, place: str, wanted: ForcedRelease) -> int:
    """Shows the holder, asks, and releases the grant that was shown; returns the exit status."""
    found = locks.describe(wanted.name)
    if found is None:
        return unknown(place, wanted.name)
    if not found.holders:
        exit_codes.say(f"lock {wanted.name!r} is free: there is nothing to release")
        return exit_codes.UNKNOWN_LOCK
    holder = _choose(found, wanted.fencing_token)
    if holder is None:
        return _tell_holders(found, wanted.fencing_token)
    exit_codes.say(f"lock {wanted.name!r} of {place} is held by")
    for line in lines.details_of_holder(holder, seen_at=found.seen_at):
        exit_codes.say(line)
    waits = "the oldest waiter gets the lock" if found.waiters.count else "no one waits"
    question = f"Release it by force? Its work is not stopped by this; {waits}."
    if not _is_confirmed(question, yes=wanted.yes, ask=wanted.ask):
        return exit_codes.DECLINED
    locks.force_release(
        wanted.name,
        holder=holder,
        reason=wanted.reason or _NO_REASON,
        requested_by=wanted.requested_by(),
    )
    if wanted.as_json:
        done = {"lock_name": wanted.name, "released": True, "fencing_token": holder.fencing_token}
        typer.echo(json.dumps(done))
    else:
        typer.echo(f"{printable(wanted.name)}: released by force; {_now(locks, wanted.name)}")
    return 0


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


def _is_confirmed(question: str, *, yes: bool, ask: Callable[[str], bool] | None) -> bool:
    if not yes and ask is None:
        exit_codes.end(exit_codes.USAGE, _NOBODY_TO_ASK)
    return yes or ask(question)  # type: ignore[misc]  # it is there


def empty_queue(
    locks: LockClient,
    place: str,
    name: str,
    *,
    yes: bool,
    ask: Callable[[str], bool] | None,
    as_json: bool = False,
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
    if as_json:
        typer.echo(json.dumps({"lock_name": name, "removed": removed}))
    else:
        typer.echo(f"{printable(name)}: removed {removed} waiters; {_now(locks, name)}")
    return 0


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
    if as_json:
        typer.echo(json.dumps({"lock_name": name, "limit": limit}))
        return 0
    done = {None: "resumed", 0: "paused"}.get(limit, f"limited to {limit}")
    typer.echo(f"{printable(name)}: {done}; {_now(locks, name)}")
    return 0


def _now(locks: LockClient, name: str) -> str:
    """What has become of the lock; the release stands, whether that can be read or not."""
    try:
        after = locks.describe(name)
    except FairlockError:
        after = None
    return "" if after is None else lines.state_of(after)


def ask_at_the_terminal() -> Callable[[str], bool] | None:
    """Asks the person at the terminal; None if the input is no terminal, or closed."""
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
        why = {"reason": reason, "requested_by": caller(target)}
        return change_ceiling(locks, name, limit, as_json=as_json, **why)


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
        why = {"reason": reason, "requested_by": caller(target)}
        return change_ceiling(locks, name, 0, as_json=as_json, **why)


@commands.command("resume", cls=Command)
@about_a_table()
def resume_command(
    target: Target, name: LockName, *, reason: _Reason = "resumed", as_json: AsJson = False
) -> int:
    """Ends a pause or a limit.

    The lock is handed over to those who wait.
    """
    with target.locks() as locks:
        why = {"reason": reason, "requested_by": caller(target)}
        return change_ceiling(locks, name, None, as_json=as_json, **why)


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
