"""`fairlock release`, as the owner or by force; `limit`, `pause`, `resume` and `empty-queue`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

from fairlock.cli import exit_codes, lines
from fairlock.cli.listing import unknown
from fairlock.client.lock_client import LockClient
from fairlock.clock import iso
from fairlock.errors import DescribedHolder, FairlockError
from fairlock.protocol.description import LockDescription
from fairlock.text import printable

_NO_REASON: Final = "no reason given"
_NOBODY_TO_ASK: Final = "there is no terminal to ask on: give --yes"
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ForcedRelease:
    """The arguments of `fairlock release --force`.

    Attributes:
        fencing_token: of the holder that is meant; None if there is only one.
        yes: whether to skip the question.
        ask: asks a question that is answered by yes or no; None without a terminal.
        requested_by: tells who releases; called when it is decided.
        as_json: whether to print an object instead of a line.
    """

    name: str
    fencing_token: int | None
    reason: str | None
    yes: bool
    ask: Callable[[str], bool] | None
    requested_by: Callable[[], str]
    as_json: bool = False


def release_own(locks: LockClient, name: str, owner_id: str, *, as_json: bool = False) -> int:
    """Releases the lock for the owner that the owner_id proves; returns the exit status.

    Raises:
        InvalidRequest: the name or the owner_id breaks its rule.
    """
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
    """Shows the holder, asks, and releases the grant that was shown; returns the exit status.

    Raises:
        HolderChanged: the grant that was shown is over; nothing was written.
    """
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
    if not _is_confirmed(found, wanted):
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


def _is_confirmed(found: LockDescription, wanted: ForcedRelease) -> bool:
    if wanted.yes:
        return True
    if wanted.ask is None:
        exit_codes.end(exit_codes.USAGE, _NOBODY_TO_ASK)
    waiting = found.waiters.count
    heir = "the oldest waiter gets the lock" if waiting else "no one waits"
    return wanted.ask(f"Release it by force? Its work is not stopped by this; {heir}.")


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
    if not yes:
        if ask is None:
            exit_codes.end(exit_codes.USAGE, _NOBODY_TO_ASK)
        if not ask("Remove all of them? Those that ask again wait again."):
            return exit_codes.DECLINED
    removed = locks.empty_queue(name)
    if as_json:
        typer.echo(json.dumps({"lock_name": name, "removed": removed}))
    else:
        typer.echo(f"{printable(name)}: removed {removed} waiters; {_now(locks, name)}")
    return 0


def change_ceiling(
    locks: LockClient,
    name: str,
    limit: int | None,
    *,
    reason: str,
    requested_by: str,
    as_json: bool = False,
) -> int:
    """Limits, pauses (0) or resumes (None) a lock; returns the exit status.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """
    if limit is None:
        locks.resume(name, reason=reason, requested_by=requested_by)
    elif limit:
        locks.set_limit(name, limit, reason=reason, requested_by=requested_by)
    else:
        locks.pause(name, reason=reason, requested_by=requested_by)
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
