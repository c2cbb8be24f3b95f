"""The queue at random: arrivals, polls, releases and cancels, interrupted, repeated and killed.

Without a model: what must hold is said of the table itself. `tests/model` searches small worlds
exhaustively; this one goes further out, over more owners, higher limits and longer times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from fairlock.aws.executions import Delivery
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import AcquireRequest, Grant, HeartbeatRequest, ReleaseRequest
from fairlock.protocol.outcomes import Queued
from fairlock.testing.fake_table import MemoryTable
from tests.property.reference_locks import Bench, Killed, read_stored
from tests.support import Operations

TOLERANCE_MS = 500
LIMITS = {"mutex": 1, "pair": 2}


@dataclass
class Acquisition:
    """One owner's acquisition, from its arrival to its release."""

    request: AcquireRequest
    granted: bool = False
    over: bool = False
    lease_until_ms: int = 0
    ticket: int | None = None

    @property
    def lock(self) -> str:
        return self.request.lock_name


class QueueMachine(RuleBasedStateMachine):
    make_bench: ClassVar[Callable[[], Bench]] = staticmethod(lambda: Bench(MemoryTable()))
    acquisitions = Bundle("acquisitions")

    def __init__(self) -> None:
        super().__init__()
        self.bench = type(self).make_bench()
        self.clock, self.client = self.bench.clock, self.bench.client
        self.dynamodb: MemoryTable = self.bench.dynamodb
        self.everyone: list[Acquisition] = []
        self.tokens: dict[str, int] = {}
        self.holders: dict[str, set[str]] = {lock: set() for lock in LIMITS}
        self.waiting: dict[str, dict[str, int]] = {lock: {} for lock in LIMITS}
        """Holders, and waiters with the end of their wait, at the last check of the invariants."""
        self.places: dict[str, dict[str, str]] = {lock: {} for lock in LIMITS}
        """Sort keys of the waiters at that check, also of those that are late."""
        self.calm = True
        """Whether nothing was killed and no lease ran out so far."""

    @rule(
        target=acquisitions,
        lock=st.sampled_from(sorted(LIMITS)),
        waits=st.sampled_from(("no", "polls", "task", "task", "task")),
        lease_ms=st.sampled_from((5_000, 60_000, 3_600_000)),
    )
    def arrive(self, lock: str, waits: str, lease_ms: int) -> Acquisition:
        acquisition = self.newcomer(lock, waits, lease_ms)
        self.ask(acquisition)
        return acquisition

    @rule(acquisition=acquisitions)
    def ask_again(self, acquisition: Acquisition) -> None:
        if not acquisition.over:
            self.ask(acquisition)

    @rule(acquisition=acquisitions)
    def release(self, acquisition: Acquisition) -> None:
        self.release_permit(acquisition)

    @rule(acquisition=acquisitions)
    def heartbeat(self, acquisition: Acquisition) -> None:
        self.renew(acquisition)

    @rule(
        acquisition=acquisitions,
        releases=st.booleans(),
        request_number=st.integers(1, 5),
        done=st.booleans(),
    )
    def killed_in_the_middle(
        self, *, acquisition: Acquisition, request_number: int, releases: bool, done: bool
    ) -> None:
        """The function dies before or after one of its requests; the caller asks again later."""
        self.calm = False
        self.client.begin(kill_at=request_number, kill_done=done)
        try:
            self.release_permit(acquisition) if releases else self.ask(acquisition)
        except (Killed, LockStoreUnavailable):
            acquisition.over = acquisition.over or releases
        self.client.begin()

    @rule(
        acquisition=acquisitions,
        begins=st.sampled_from(("arrive", "ask", "release", "release")),
        other=st.integers(0, 3),
        does=st.sampled_from(("arrive", "ask", "release", "heartbeat")),
        request_number=st.integers(2, 3),
        later_seconds=st.sampled_from((0, 8)),
    )
    def interrupted_by_another(
        self,
        *,
        acquisition: Acquisition,
        begins: str,
        other: int,
        does: str,
        request_number: int,
        later_seconds: int,
    ) -> None:
        """Another caller acts on the same lock between two requests of an operation."""
        self.clock.advance(later_seconds)
        others = [a for a in self.everyone if a.lock == acquisition.lock and a is not acquisition]
        others = [a for a in others if does != "ask" or not a.over]
        rival = replace(self.bench).store

        def interrupt() -> None:
            if does == "arrive":
                self.ask(self.newcomer(acquisition.lock, "task", 60_000), rival)
            elif others and does == "ask":
                self.ask(others[other % len(others)], rival)
            elif others and does == "release":
                self.release_permit(others[other % len(others)], rival)
            elif others:
                self.renew(others[other % len(others)])

        self.client.begin(interrupt_at=request_number, interruption=interrupt)
        if begins == "arrive":
            self.ask(self.newcomer(acquisition.lock, "task", 5_000))
        elif begins == "ask" and not acquisition.over:
            self.ask(acquisition)
        else:
            self.release_permit(acquisition)
        self.client.begin()

    @rule(outcome=st.sampled_from(Delivery))
    def step_functions_answers(self, outcome: Delivery) -> None:
        self.bench.workflows.wakes = outcome

    @rule(seconds=st.sampled_from((1, 4, 8, 30, 120)))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @invariant()
    def no_more_holders_than_permits(self) -> None:
        for lock, limit in LIMITS.items():
            stored = read_stored(self.state(lock))
            assert stored.held == len(stored.holders) <= limit

    @invariant()
    def waiters_are_known_to_their_lock_and_hold_nothing(self) -> None:
        for lock in LIMITS:
            state, waiters = self.state(lock), self.waiters(lock)
            if waiters:
                assert state["contended"]["BOOL"], "an acquire would overtake them"
            assert not {owner for _, owner in waiters} & set(read_stored(state).holders)

    @invariant()
    def no_permit_is_idle_while_somebody_waits(self) -> None:
        for lock, limit in LIMITS.items():
            if self.calm and self.waiters(lock):
                assert read_stored(self.state(lock)).held == limit

    @invariant()
    def tokens_rise_and_nobody_is_overtaken_or_evicted_early(self) -> None:
        for lock in LIMITS:
            holders = read_stored(self.state(lock)).holders
            for acquisition in self.everyone:
                if acquisition.request.owner_id in self.holders[lock] - set(holders):
                    over_ms = self.clock.wall_ms() - acquisition.lease_until_ms
                    assert acquisition.over or over_ms >= TOLERANCE_MS, "no one is evicted early"
            new = sorted(set(holders) - self.holders[lock], key=lambda o: holders[o]["token"])
            for owner in new:
                assert holders[owner]["token"] > self.tokens.get(lock, 0), "tokens rise"
                self.tokens[lock] = holders[owner]["token"]
                earlier = {o for key, o in self.waiters(lock) if key < self.place(lock, owner)}
                assert not earlier & self.still_waiting(lock), "grants come in order of queueing"
            self.holders[lock] = set(holders)
            items = reversed(self.dynamodb.waiters(lock))
            self.places[lock] = {item["owner_id"]["S"]: item["sk"]["S"] for item in items}
            self.waiting[lock] = {
                owner: self.waits_until_ms(lock, key) for key, owner in self.waiters(lock)
            }

    def teardown(self) -> None:
        """Every owner that waits gets the lock, if the holders release it."""
        self.bench.workflows.wakes = Delivery.UNKNOWN
        for _ in range(len(self.everyone) + 1):
            for acquisition in self.everyone:
                if acquisition.granted or acquisition.over:
                    self.release_permit(acquisition)
                else:
                    self.ask(acquisition)
        assert all(acquisition.over for acquisition in self.everyone)
        for lock in LIMITS:
            assert self.waiters(lock) == []
            assert read_stored(self.state(lock)).holders == {}
            newcomer = AcquireRequest(lock_name=lock, owner_id="newcomer-01234567")
            assert isinstance(self.bench.store.acquire(newcomer), Grant)

    def newcomer(self, lock: str, waits: str, lease_ms: int) -> Acquisition:
        self.clock.advance(0.001)
        number = len(self.everyone)
        request = AcquireRequest(
            lock_name=lock,
            owner_id=f"owner-{number:010}",
            limit=LIMITS[lock],
            lease_ms=lease_ms,
            waits=waits != "no",
            task_token=f"token-{number}" if waits == "task" else None,
        )
        self.everyone.append(Acquisition(request))
        return self.everyone[-1]

    def renew(self, acquisition: Acquisition) -> None:
        request = acquisition.request
        answer = self.bench.store.heartbeat(
            HeartbeatRequest(lock_name=request.lock_name, owner_id=request.owner_id)
        )
        if isinstance(answer, Grant):
            acquisition.lease_until_ms = answer.expires_at_ms

    def ask(self, acquisition: Acquisition, store: Operations | None = None) -> None:
        request = acquisition.request
        answer = (store or self.bench.store).acquire(replace(request, ticket=acquisition.ticket))
        acquisition.granted = isinstance(answer, Grant)
        holders = read_stored(self.state(request.lock_name)).holders
        if isinstance(answer, Grant):
            assert holders[request.owner_id]["token"] == answer.fencing_token
            acquisition.lease_until_ms = answer.expires_at_ms
        if isinstance(answer, Queued):
            acquisition.ticket = answer.entered_at_ms
            # Handed over in the meantime, it is told by the push or by its next poll.
            waiting = {owner for _, owner in self.waiters(request.lock_name)}
            assert request.owner_id in waiting | set(holders)

    def release_permit(self, acquisition: Acquisition, store: Operations | None = None) -> None:
        request = acquisition.request
        (store or self.bench.store).release(
            ReleaseRequest(
                lock_name=request.lock_name,
                owner_id=request.owner_id,
                waits=True,
                ticket=acquisition.ticket,
            )
        )
        acquisition.over, acquisition.granted = True, False
        assert request.owner_id not in read_stored(self.state(request.lock_name)).holders
        assert request.owner_id not in [owner for _, owner in self.waiters(request.lock_name)]

    def state(self, lock: str) -> dict[str, Any]:
        return self.dynamodb.state(lock)

    def waiters(self, lock: str) -> list[tuple[str, str]]:
        """Sort key and owner of the waiters that still ask, the oldest first."""
        return [
            (item["sk"]["S"], item["owner_id"]["S"])
            for item in self.dynamodb.waiters(lock)
            if int(item["expires_at_ms"]["N"]) >= self.clock.wall_ms()
        ]

    def waits_until_ms(self, lock: str, key: str) -> int:
        return int(self.dynamodb.items[f"LOCK#{lock}", key]["expires_at_ms"]["N"])

    def still_waiting(self, lock: str) -> set[str]:
        """Owners that waited at the last check and have not been away for too long since."""
        now_ms = self.clock.wall_ms()
        return {owner for owner, until_ms in self.waiting[lock].items() if until_ms >= now_ms}

    def place(self, lock: str, owner: str) -> str:
        """The sort key of a waiter at the last check; of one that came since, the present."""
        return self.places[lock].get(owner, f"WAITER#{self.clock.wall_ms():015}#{owner}")
