"""Whose heartbeat is next: pure bookkeeping, no threads and no requests.

Every lock has one moment at which it is looked at: when its heartbeat is due, when it comes into
danger, or when its lease is over. Heartbeats that are due and find no worker wait; the lease that
ends first goes first.

Heartbeats of locks that were acquired together would stay together, and need many workers at a
time. So first and later periods are shortened at random; and if heartbeats have been late of late,
all begin earlier by as much.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Final

from leasehold.backoff import Random
from leasehold.client.lease_handle import LeaseHandle

_LEAST_FIRST_SHARE: Final = 0.5
_SPREAD: Final = 0.1
_EARLIEST_SHARE: Final = 0.5
_NEWEST_WEIGHT: Final = 0.1
_SHORTEST_RETRY_SECONDS: Final = 0.05
_RETRY_SHARE_OF_PERIOD: Final = 0.25
_RETRY_SHARE_OF_REST: Final = 0.125
_DEAD_ENTRIES_KEPT: Final = 1_000


@dataclass(slots=True, eq=False)
class ScheduledHeartbeat:
    """One lock's place in the rota.

    Attributes:
        heartbeat_at: reading of the monotonic clock at which its next heartbeat is due.
        in_flight: whether its heartbeat waits for a worker, or is under way.
        due_at: the moment of its valid entry in the agenda.
        is_over: whether it was taken out.
    """

    held: LeaseHandle
    heartbeat_at: float
    in_flight: bool = False
    due_at: float = 0.0
    is_over: bool = False


_Entry = tuple[float, int, ScheduledHeartbeat]


@dataclass(slots=True, kw_only=True)
class HeartbeatSchedule:
    """All locks of a client.

    Attributes:
        most_at_once: how many heartbeats may be under way at a time.
        random: source of jitter.
        late_seconds: how late the latest heartbeats arrived, on average.
    """

    most_at_once: int
    random: Random
    late_seconds: float = 0.0
    _turns: dict[LeaseHandle, ScheduledHeartbeat] = field(default_factory=dict)
    _agenda: list[_Entry] = field(default_factory=list)
    _ready: list[_Entry] = field(default_factory=list)
    _under_way: int = 0
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def add(self, held: LeaseHandle) -> None:
        """A lock that is held from now on, or whose lease has another length from now on."""
        self.remove(held)
        period = held.period
        share = _LEAST_FIRST_SHARE + self.random() * (1 - _LEAST_FIRST_SHARE)
        turn = ScheduledHeartbeat(
            held, heartbeat_at=held.ends_at - held.lease_seconds + period * share
        )
        self._turns[held] = turn
        self._enter(turn)

    def remove(self, held: LeaseHandle) -> None:
        """A lock that needs no heartbeats any more."""
        turn = self._turns.pop(held, None)
        if turn is not None:
            turn.is_over = True
        if len(self._agenda) > 2 * len(self._turns) + _DEAD_ENTRIES_KEPT:
            self._agenda = [entry for entry in self._agenda if _is_valid(entry)]
            heapq.heapify(self._agenda)

    def locks(self) -> list[LeaseHandle]:
        """All locks in it."""
        return list(self._turns)

    def is_empty(self) -> bool:
        """Whether there is no lock in it."""
        return not self._turns

    def next_at(self) -> float | None:
        """When to look at the rota next, if nothing happens before."""
        while self._agenda and not _is_valid(self._agenda[0]):
            heapq.heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else None

    def due(self, now: float) -> list[ScheduledHeartbeat]:
        """The heartbeats to begin now. Callbacks locks that are lost by now, or in danger."""
        come = []
        while self._agenda and self._agenda[0][0] <= now:
            come.append(heapq.heappop(self._agenda))
        for entry in come:
            if _is_valid(entry):
                self._check_lease(entry[-1], now)
        begun = []
        while self._ready and self._under_way < self.most_at_once:
            turn = heapq.heappop(self._ready)[-1]
            if not turn.is_over:
                self._under_way += 1
                begun.append(turn)
        return begun

    def done(self, turn: ScheduledHeartbeat, *, renewed: bool, now: float) -> None:
        """A heartbeat that `due` had begun came to an end."""
        self._under_way -= 1
        turn.in_flight = False
        self.late_seconds += _NEWEST_WEIGHT * (now - turn.heartbeat_at - self.late_seconds)
        if turn.is_over:
            return
        held = turn.held
        if renewed:
            sent = held.ends_at - held.lease_seconds
            period = max(held.period * _EARLIEST_SHARE, held.period - max(0.0, self.late_seconds))
            turn.heartbeat_at = sent + period * (1 - self.random() * _SPREAD)
        else:
            rest = max(0.0, held.ends_at - now) * _RETRY_SHARE_OF_REST
            pause = min(held.period * _RETRY_SHARE_OF_PERIOD, rest) * (0.5 + self.random())
            turn.heartbeat_at = now + max(pause, _SHORTEST_RETRY_SECONDS)
        self._enter(turn)

    def _check_lease(self, turn: ScheduledHeartbeat, now: float) -> None:
        if not turn.held.check_lease():
            self.remove(turn.held)
            return
        if not turn.in_flight and turn.heartbeat_at <= now:
            turn.in_flight = True
            heapq.heappush(self._ready, (turn.held.ends_at, next(self._order), turn))
        self._enter(turn)

    def _enter(self, turn: ScheduledHeartbeat) -> None:
        held = turn.held
        moments = [held.ends_at, held.danger_at]
        if not turn.in_flight:
            moments.append(turn.heartbeat_at)
        turn.due_at = min(moments)
        heapq.heappush(self._agenda, (turn.due_at, next(self._order), turn))


def _is_valid(entry: _Entry) -> bool:
    at, _, turn = entry
    return not turn.is_over and at == turn.due_at
