"""The state machine: owners, locks, clocks and faults at random, against reference locks.

Each rule runs one operation on the store and on the reference, compares their whole answers, and
checks what must hold whatever the reference says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.model import AcquireRequest, HeartbeatRequest, ReleaseRequest
from fairlock.wire.answers import acquire_answer, heartbeat_answer, release_answer
from tests.property.reference_locks import Bench, Plan, ReferenceLocks, StoredLock, read_stored

OWNERS = tuple(f"owner-{letter}-0123456789" for letter in "abcd")
LOCKS = ("x", "y")
SKEWS_MS = (-1_000, 0, 1_000)
"""Clocks differ by two seconds at most: the tolerance."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One operation as a caller sends it. Any may be sent again at any time later."""

    kind: str
    lock: str
    owner: str
    limit: int = 1
    lease_ms: int | None = None


def _calls(kind: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.builds(
        Call, kind=st.just(kind), lock=st.sampled_from(LOCKS), owner=st.sampled_from(OWNERS), **more
    )


LEASES_MS = st.sampled_from((1_000, 5_000, 5_000, 60_000, 43_200_000))
ACQUIRES = _calls("acquire", limit=st.sampled_from((1, 1, 2, 3)), lease_ms=LEASES_MS)
CALLS = st.one_of(
    ACQUIRES,
    _calls("heartbeat", lease_ms=st.none() | LEASES_MS),
    _calls("release"),
)
SKEWS = st.sampled_from(SKEWS_MS)


class LockMachine(RuleBasedStateMachine):
    """Drives the bench that `make_bench` makes, a new one for each example."""

    make_bench: ClassVar[Callable[[], Bench]]
    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.bench = type(self).make_bench()
        self.reference = ReferenceLocks()
        self.newest_token: dict[str, int] = {}
        self.owner_of_token: dict[tuple[str, int], str] = {}

    @initialize(target=sent, calls=st.lists(CALLS, min_size=1, max_size=4))
    def begin(self, calls: list[Call]) -> Any:  # noqa: ANN401 - Hypothesis' own type
        return multiple(*calls)

    @rule(target=sent, call=CALLS, skew_ms=SKEWS)
    def call(self, call: Call, skew_ms: int) -> Call:
        self.run(call, skew_ms)
        return call

    @rule(call=sent, skew_ms=SKEWS)
    def deliver_again(self, call: Call, skew_ms: int) -> None:
        self.run(call, skew_ms)

    @rule(call=sent | CALLS, skew_ms=SKEWS)
    def call_whose_reply_is_lost(self, call: Call, skew_ms: int) -> None:
        before = read_stored(self.bench.item(call.lock))
        self.bench.clock.skew_ms = skew_ms
        expected = self.ask_reference(call)
        self.bench.client.begin(loses_reply=True)
        try:
            assert self.ask_store(call) == expected
        except LockStoreUnavailable:
            assert read_stored(self.bench.item(call.lock)) != before
        self.bench.client.begin()
        self.note_tokens(call, expected)

    @rule(
        call=ACQUIRES, skew_ms=SKEWS, other=sent | CALLS, later_seconds=st.sampled_from((0, 4, 8))
    )
    def acquire_interrupted_by(
        self, call: Call, skew_ms: int, other: Call, later_seconds: int
    ) -> None:
        """Another call for the same lock lands between the two writes of a takeover."""
        other = replace(other, lock=call.lock)
        self.bench.clock.advance(later_seconds)
        self.bench.clock.skew_ms = skew_ms
        now_ms = self.bench.clock.wall_ms()
        plan = self.reference.plan(now_ms, lock=call.lock, owner=call.owner, limit=call.limit)
        rival = replace(self.bench)

        def interrupt() -> None:
            answer, expected = self.ask_store(other, rival), self.ask_reference(other)
            assert answer == expected
            self.note_tokens(other, expected)

        self.bench.client.begin(interruption=interrupt)
        answer = self.ask_store(call)
        was_interrupted = self.bench.client.interruption is None
        self.bench.client.begin()
        expected = self.ask_reference(call, plan=plan if was_interrupted else None)
        assert answer == expected
        self.note_tokens(call, expected)

    @rule(seconds=st.sampled_from((0.5, 1, 2, 3, 3, 5, 8, 60, 3_600, 43_200)))
    def advance(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @precondition(lambda self: self.reference.locks)
    @rule(lock=st.sampled_from(LOCKS))
    def ttl_deletes_what_is_past_its_retention(self, lock: str) -> None:
        state = self.reference.locks.get(lock)
        if state is not None:
            self.bench.clock.skew_ms = 0
            seconds = state.ttl_seconds + 1 - self.bench.clock.wall_ms() // 1000
            self.bench.clock.advance(max(0, seconds))
            self.bench.delete(lock)
            del self.reference.locks[lock]

    @invariant()
    def the_table_is_as_the_reference_says(self) -> None:
        for lock in LOCKS:
            stored = read_stored(self.bench.item(lock))
            assert stored.held == len(stored.holders), "the count of permits is that of the holders"
            for holder in stored.holders.values():
                assert stored.held <= holder["limit"], "no more hold than any holder allows"
                assert stored.limit <= holder["limit"], "the limit in force is never too high"
            assert stored == StoredLock.of(self.reference.locks.get(lock))

    def run(self, call: Call, skew_ms: int) -> None:
        self.bench.clock.skew_ms = skew_ms
        before = read_stored(self.bench.item(call.lock))
        now_ms = self.bench.clock.wall_ms()
        expected = self.ask_reference(call)
        self.bench.client.begin()
        answer = self.ask_store(call)
        assert answer == expected
        self.check_step(call, answer, before, now_ms)
        self.note_tokens(call, answer)

    def check_step(
        self, call: Call, answer: dict[str, Any], before: StoredLock, now_ms: int
    ) -> None:
        """What must hold between the item before and the item after, without any reference."""
        after = read_stored(self.bench.item(call.lock))
        gone = set(before.holders) - set(after.holders)
        if not (answer.get("acquired") or answer.get("renewed") or answer.get("released")):
            assert after == before, "a refusal changes nothing"
        if call.kind == "acquire":
            for owner in gone:
                over_for_ms = now_ms - before.holders[owner]["expires_at_ms"]
                assert over_for_ms >= 500, "no holder is evicted before its lease is over"
            if answer["acquired"] and call.owner not in before.holders:
                assert len(after.holders) <= call.limit, "no more holders than permits"
        elif call.kind == "release":
            assert gone <= {call.owner}, "a release frees the caller's permit only"
            assert before.held - after.held == len(gone)
        else:
            assert not gone

    def note_tokens(self, call: Call, answer: dict[str, Any]) -> None:
        if not answer.get("acquired"):
            return
        token, key = answer["fencing_token"], (call.lock, answer["fencing_token"])
        if key in self.owner_of_token:
            assert self.owner_of_token[key] == call.owner, "a token is granted once"
        else:
            assert token > self.newest_token.get(call.lock, 0), "tokens rise"
            self.newest_token[call.lock] = token
        self.owner_of_token[key] = call.owner

    def ask_store(self, call: Call, bench: Bench | None = None) -> dict[str, Any]:
        store = (bench or self.bench).store
        named: dict[str, Any] = {"lock_name": call.lock, "owner_id": call.owner}
        if call.kind == "heartbeat":
            renewal = HeartbeatRequest(**named, lease_ms=call.lease_ms)
            return heartbeat_answer(store.heartbeat(renewal))
        if call.kind == "release":
            return release_answer(store.release(ReleaseRequest(**named)))
        request = AcquireRequest(
            **named,
            owner_name=f"name of {call.owner}",
            limit=call.limit,
            lease_ms=call.lease_ms or 60_000,
        )
        answer = acquire_answer(store.acquire(request))
        assert answer.pop("retry_after_seconds", 1) >= 1
        return answer

    def ask_reference(self, call: Call, plan: Plan | None = None) -> dict[str, Any]:
        now_ms = self.bench.clock.wall_ms()
        named = {"lock": call.lock, "owner": call.owner}
        if call.kind == "heartbeat":
            return self.reference.heartbeat(now_ms, **named, lease_ms=call.lease_ms)
        if call.kind == "release":
            return self.reference.release(now_ms, **named)
        lease_ms = call.lease_ms or 60_000
        return self.reference.acquire(
            now_ms, **named, limit=call.limit, lease_ms=lease_ms, plan=plan
        )
