"""`fairlock show`: holders and waiters of a lock. Owner ids prove ownership and stay hidden."""

from __future__ import annotations

import json

import typer

from fairlock.cli import exit_codes, lines
from fairlock.client.lock_client import LockClient
from fairlock.wire.descriptions import lock_json


def show(locks: LockClient, place: str, lock_name: str, *, as_json: bool = False) -> int:
    """Prints the holders and the oldest waiters; returns the exit status.

    Two requests, and one more for each MB of waiters.

    Raises:
        InvalidRequest: the lock's name breaks its rule.
        LockStoreUnavailable: the lock table did not answer.
        LockStoreMisconfigured: AWS refuses.
        LockItemMalformed: somebody has changed an item of the lock.
    """
    found = locks.describe(lock_name)
    if found is None:
        return unknown(place, lock_name)
    if as_json:
        typer.echo(json.dumps(lock_json(found)))
        return 0
    for line in lines.details(found):
        typer.echo(line)
    return 0


def unknown(place: str, lock_name: str) -> int:
    """Says that the table knows no such lock; returns the exit status."""
    why = "nobody has used it, or not for days; are the name and the table right?"
    exit_codes.say(f"{place} knows no lock {lock_name!r}: {why}")
    return exit_codes.UNKNOWN_LOCK
