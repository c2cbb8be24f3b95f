"""The protocol at random against reference locks, and the mutants that this search has to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from fairlock.protocol import outcomes
from fairlock.protocol.model import AcquireRequest, HeartbeatRequest, ReleaseRequest
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.answers import acquire_answer, heartbeat_answer, release_answer
from tests.property.mutants import MUTANTS
from tests.property.reference_locks import Answer, Lock, Plan, ReferenceLocks, read_stored
from tests.support import Operations, store_over
from tests.support.clocks import WrongClock
from tests.support.faulty_table import Fault, FaultyTable, lost_reply, meanwhile
from tests.support.weakened import Patch, patched

pytestmark = pytest.mark.cached

# Owners, locks, clocks and faults at random, against reference locks.
#
# Each rule runs one operation on the store and on the reference, compares their whole answers,
# and checks what must hold whatever the reference says.

OWNERS = tuple(f"owner-{letter}-0123456789" for letter in "abcd")
LOCKS = ("x", "y")
SKEWS_MS = (-1_000, 0, 1_000)
"""Clocks differ by two seconds at most: the tolerance."""


Request = AcquireRequest | HeartbeatRequest | ReleaseRequest
"""One operation as a caller sends it. Any may be sent again at any time later."""


def _acquire(**fields: Any) -> AcquireRequest:  # noqa: ANN401 - of the request
    return AcquireRequest(owner_name=f"name of {fields['owner_id']}", **fields)


_OF_ANYONE = {"lock_name": st.sampled_from(LOCKS), "owner_id": st.sampled_from(OWNERS)}
LEASES_MS = st.sampled_from((1_000, 5_000, 5_000, 60_000, 43_200_000))
LIMITS = st.sampled_from((1, 1, 2, 3))
ACQUIRES = st.builds(_acquire, **_OF_ANYONE, limit=LIMITS, lease_ms=LEASES_MS)
CALLS: st.SearchStrategy[Request] = st.one_of(
    ACQUIRES,
    st.builds(HeartbeatRequest, **_OF_ANYONE, lease_ms=st.none() | LEASES_MS),
    st.builds(ReleaseRequest, **_OF_ANYONE),
)
SKEWS = st.sampled_from(SKEWS_MS)


def loses_a_reply() -> Fault:
    """The reply to the first write that happens gets lost."""
    left = [lost_reply()]

    def tell(answer: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        if left:
            raise left.pop()
        return answer

    return Fault(tells=tell)


class LockMachine(RuleBasedStateMachine):
    """Runs each operation over a new table, and on the reference."""

    sent = Bundle("sent")

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.clock = MemoryTable(), WrongClock()
        self.table = FaultyTable(self.memory)
        self.store = store_over(self.table, self.clock)
        self.reference = ReferenceLocks()
        self.newest_token: dict[str, int] = {}
        self.owner_of_token: dict[tuple[str, int], str] = {}

    @initialize(target=sent, calls=st.lists(CALLS, min_size=1, max_size=4))
    def begin(self, calls: list[Request]) -> Any:  # noqa: ANN401 - Hypothesis' own type
        return multiple(*calls)

    @rule(target=sent, call=CALLS, skew_ms=SKEWS)
    def call(self, call: Request, skew_ms: int) -> Request:
        self.run(call, skew_ms)
        return call

    @rule(call=sent, skew_ms=SKEWS)
    def deliver_again(self, call: Request, skew_ms: int) -> None:
        self.run(call, skew_ms)

    @rule(call=sent | CALLS, skew_ms=SKEWS)
    def call_whose_reply_is_lost(self, call: Request, skew_ms: int) -> None:
        before = self.stored(call.lock_name)
        self.clock.skew_ms = skew_ms
        expected = self.ask_reference(call)
        self.table.will(loses_a_reply())
        try:
            assert self.ask_store(call) == expected
        except LockStoreUnavailable:
            assert self.stored(call.lock_name) != before
        self.table.will()
        self.note_tokens(call, expected)

    @rule(
        call=ACQUIRES, skew_ms=SKEWS, other=sent | CALLS, later_seconds=st.sampled_from((0, 4, 8))
    )
    def acquire_interrupted_by(
        self, call: AcquireRequest, skew_ms: int, other: Request, later_seconds: int
    ) -> None:
        """Another call for the same lock lands between the two writes of a takeover."""
        other = replace(other, lock_name=call.lock_name)
        self.clock.advance(later_seconds)
        self.clock.skew_ms = skew_ms
        plan = self.reference.plan(
            self.clock.wall_ms(), lock=call.lock_name, owner=call.owner_id, limit=call.limit
        )
        rival = store_over(self.memory, self.clock)

        def interrupt() -> None:
            answer, expected = self.ask_store(other, rival), self.ask_reference(other)
            assert answer == expected
            self.note_tokens(other, expected)

        interruption = meanwhile(2, interrupt)
        self.table.will(interruption)
        answer = self.ask_store(call)
        self.table.will()
        was_interrupted = interruption.seen > 1
        expected = self.ask_reference(call, plan if was_interrupted else None)
        assert answer == expected
        self.note_tokens(call, expected)

    @rule(seconds=st.sampled_from((0.5, 1, 2, 3, 3, 5, 8, 60, 3_600, 43_200)))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.reference.locks)
    @rule(lock=st.sampled_from(LOCKS))
    def ttl_deletes_what_is_past_its_retention(self, lock: str) -> None:
        state = self.reference.locks.get(lock)
        if state is not None:
            self.clock.skew_ms = 0
            seconds = state.ttl_seconds + 1 - self.clock.wall_ms() // 1000
            self.clock.advance(max(0, seconds))
            del self.memory.items[f"LOCK#{lock}", "STATE"]
            del self.reference.locks[lock]

    @invariant()
    def the_table_is_as_the_reference_says(self) -> None:
        for lock in LOCKS:
            stored = self.stored(lock)
            assert stored is None or stored.is_within_limits
            assert stored == self.reference.locks.get(lock)

    def run(self, call: Request, skew_ms: int) -> None:
        self.clock.skew_ms = skew_ms
        before = self.stored(call.lock_name)
        now_ms = self.clock.wall_ms()
        expected = self.ask_reference(call)
        answer = self.ask_store(call)
        assert answer == expected
        self.check_step(call, answer, before, now_ms)
        self.note_tokens(call, answer)

    def stored(self, lock: str) -> Lock | None:
        return read_stored(self.memory.items.get((f"LOCK#{lock}", "STATE"), {}))

    def check_step(self, call: Request, answer: Answer, before: Lock | None, now_ms: int) -> None:
        """What must hold between the item before and the item after, without any reference."""
        after = self.stored(call.lock_name)
        if not (answer.get("acquired") or answer.get("renewed") or answer.get("released")):
            assert after == before, "a refusal changes nothing"
        was = {} if before is None else before.permits
        gone = set(was) - set({} if after is None else after.permits)
        if isinstance(call, AcquireRequest):
            for owner in gone:
                over_for_ms = now_ms - was[owner].expires_ms
                assert over_for_ms >= 500, "no holder is evicted before its lease is over"
        else:
            assert gone <= ({call.owner_id} if isinstance(call, ReleaseRequest) else set())

    def note_tokens(self, call: Request, answer: Answer) -> None:
        if not answer.get("acquired"):
            return
        token, key = answer["fencing_token"], (call.lock_name, answer["fencing_token"])
        if key in self.owner_of_token:
            assert self.owner_of_token[key] == call.owner_id, "a token is granted once"
        else:
            assert token > self.newest_token.get(call.lock_name, 0), "tokens rise"
            self.newest_token[call.lock_name] = token
        self.owner_of_token[key] = call.owner_id

    def ask_store(self, call: Request, rival: Operations | None = None) -> Answer:
        store = rival or self.store
        match call:
            case HeartbeatRequest():
                return heartbeat_answer(store.heartbeat(call))
            case ReleaseRequest():
                return release_answer(store.release(call))
        answer = acquire_answer(store.acquire(call))
        assert answer.pop("retry_after_seconds", 1) >= 1
        return answer

    def ask_reference(self, call: Request, plan: Plan | None = None) -> Answer:
        now_ms = self.clock.wall_ms()
        named: dict[str, Any] = {"lock": call.lock_name, "owner": call.owner_id}
        match call:
            case HeartbeatRequest():
                return self.reference.heartbeat(now_ms, **named, lease_ms=call.lease_ms)
            case ReleaseRequest():
                return self.reference.release(now_ms, **named)
        return self.reference.acquire(
            now_ms, **named, limit=call.limit, lease_ms=call.lease_ms, plan=plan
        )


EXAMPLES: Final = settings(
    max_examples=100,
    stateful_step_count=40,
    # The same examples in each run, however busy the machine is: a red one stays red.
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
UNTIL_FOUND: Final = settings(
    EXAMPLES,
    max_examples=150,
    phases=[Phase.generate],  # no one reads the counterexample, so it need not be short
    report_multiple_bugs=False,
    print_blob=False,
)


def test_any_order_of_calls_faults_and_clocks_gives_the_answers_of_the_reference() -> None:
    run_state_machine_as_test(LockMachine, settings=EXAMPLES)


_EARLY: Final[Patch] = (
    outcomes,
    "is_over",
    lambda expires_at_ms, *, date_ms: date_ms >= expires_at_ms - 1_500,
)


@pytest.mark.parametrize(
    "patch", [*MUTANTS.values(), _EARLY], ids=[*MUTANTS, "a contender does not wait for the end"]
)
def test_a_wrong_protocol_is_found(patch: Patch) -> None:
    # A wrong protocol may also leave an item that makes no sense to the store.
    with patched([patch]), pytest.raises((AssertionError, LockItemMalformed)):
        run_state_machine_as_test(LockMachine, settings=UNTIL_FOUND)
