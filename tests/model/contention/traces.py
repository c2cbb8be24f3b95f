"""Tells a behaviour, a line a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.model.contention.faults import (
    COPY,
    CRASH,
    EPOCH,
    HELD_BACK,
    LANDS,
    LATE_CALL,
    LATE_JOIN,
    LOST_PUSH,
    LOST_REPLY,
    NONE,
    ORPHAN,
    REPEAT,
)
from tests.model.contention.transitions import FIRST_CLIENT, Move, State, World

_FAULTS = {
    CRASH: "dies",
    ORPHAN: "dies, but its handler goes on",
    LOST_REPLY: "happens, but the caller is not told and begins again",
    LOST_PUSH: "is lost",
    REPEAT: "is sent twice",
    LATE_JOIN: "happens, but queries do not show its waiter yet",
    COPY: "is sent again after its time-out; the first sending stays on the wire",
    HELD_BACK: "stays on the wire; the caller begins again after its time-out",
    LATE_CALL: "calls, and calls again after its time-out; the first call stays on the wire",
    EPOCH: "time passes, until all leases of before are over",
}


def tell(world: World, way: Iterable[tuple[State, Move]]) -> Iterator[str]:
    """The steps, each with the lock and the queue after it."""
    for number, (before, move) in enumerate(way, start=1):
        yield f"{number:3}. {_event(world, before, move):76} {_table(world, move.to)}"


def _event(world: World, before: State, move: Move) -> str:
    if move.fault == LANDS:
        return f"the late copy of {world.progress.calls[move.call].name} lands"
    if move.by == NONE:
        return _FAULTS[move.fault]
    at = move.by
    client = world.clients[at - FIRST_CLIENT]
    status = world.progress.known[move.to[at]].local.status
    then = "" if before[at] == move.to[at] else f" → {status.value}"
    if move.call == NONE:
        return f"{client.name} {_FAULTS[move.fault]}"
    name = world.progress.calls[move.call].name
    fault = f", {_FAULTS[move.fault]}" if move.fault != NONE else ""
    moved = before[0] != move.to[0]
    others = [
        f", {world.clients[i - FIRST_CLIENT].name} is told"
        for i in range(FIRST_CLIENT, len(before))
        if i != at and before[i] != move.to[i]
    ]
    effect = "" if moved or others else " (changes nothing)"
    return f"{client.name}: {name}{fault}{''.join(others)}{effect}{then}"


def _table(world: World, state: State) -> str:
    lock, waiting, _ = world.tables.lock(state[0])
    names = {client.owner_id: client.name for client in reversed(world.clients)}
    holders = [f"{names[h.owner_id]}#{h.fencing_token % 1000}" for h in lock.holders]
    waiters = [names[owner_id] for owner_id in waiting]
    flag = "contended" if lock.contended else "open"
    return (
        f"| {flag}, held by {', '.join(holders) or 'no one'}; waiting: {', '.join(waiters) or '-'}"
    )
