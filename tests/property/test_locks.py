"""The searches with random requests, and the mutants that they have to find."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import Phase, settings
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
from fairlock.testing.interpreter import placeholders
from fairlock.wire.answers import acquire_answer, heartbeat_answer, release_answer
from tests.property.queue_machine import QueueMachine
from tests.property.reference_locks import (
    Bench,
    Mutation,
    Plan,
    ReferenceLocks,
    StoredLock,
    read_stored,
)
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


# Owners, locks, clocks and faults at random, against reference locks.
#
# Each rule runs one operation on the store and on the reference, compares their whole answers,
# and checks what must hold whatever the reference says.

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


Request = dict[str, Any]


def _in_condition(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "ConditionExpression", pattern, replacement))


def _in_change(pattern: str, replacement: str = "") -> Mutation:
    return _in_updates(lambda update: _edited(update, "UpdateExpression", pattern, replacement))


def _in_updates(edit: Callable[[Request], Request]) -> Mutation:
    """Edits updates, also those within transactions."""

    def mutate(name: str, request: Request) -> Request:
        if name == "update_item":
            return edit(request)
        if name == "transact_write_items":
            if "Update" not in request["TransactItems"][0]:
                return request
            state, other = request["TransactItems"]
            return {**request, "TransactItems": [{"Update": edit(state["Update"])}, other]}
        return request

    return mutate


def _edited(update: Request, expression: str, pattern: str, replacement: str) -> Request:
    text = re.sub(pattern, replacement, update[expression])
    if text == update[expression]:
        return update
    edited = {**update, expression: text}
    # DynamoDB would refuse placeholders that the edit left unused.
    used = placeholders(edited["UpdateExpression"], edited["ConditionExpression"])
    parts = ("ExpressionAttributeNames", "ExpressionAttributeValues")
    return edited | {
        part: {name: value for name, value in update[part].items() if name in used}
        for part in parts
    }


def _first_token(update: Request) -> Request:
    values = update["ExpressionAttributeValues"]
    if ":seed" not in values:
        return update
    return {**update, "ExpressionAttributeValues": {**values, ":seed": {"N": "0"}}}


def _leave_waiter(name: str, request: Request) -> Request:
    if name != "transact_write_items" or "Update" not in request["TransactItems"][0]:
        return request
    if "Delete" not in request["TransactItems"][1]:
        return request
    return {**request, "TransactItems": request["TransactItems"][:1]}


MUTANTS: dict[str, Mutation] = {
    "the limit is compared with <>, and with no one else's": _in_condition(
        r"\(#held < :limit AND #limit = :limit\)", "#held <> :limit"
    ),
    "the first write ignores the limit in force": _in_condition(r" AND #limit = :limit"),
    "the limit in force is never lowered": _in_change(
        r"#limit = :limit", "#limit = if_not_exists(#limit, :limit)"
    ),
    "the limit is compared with <=": _in_condition(r"#held < :limit", "#held <= :limit"),
    "a delayed duplicate may acquire again": _in_condition(
        r" AND \(attribute_not_exists\(#last_released\) OR #last_released <> :me\)"
        r" AND \(attribute_not_exists\(#last_given_up\) OR #last_given_up <> :me\)"
    ),
    "a holder may acquire again": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
    "a takeover ignores a heartbeat in between": _in_condition(
        r" AND #over\d+\.#h_revision = :seen\d+"
    ),
    "a release needs no permit": _in_condition(
        r"^attribute_exists\(#mine\) AND (?=attribute_not_exists\(#contended)",
        "attribute_exists(#held) AND ",
    ),
    "a release does not count": _in_change(r"#held = #held - :one, "),
    "a token counter belongs to an owner": _in_change(
        r"#fencing_token = if_not_exists\(#fencing_token, (:\w+)\)",
        r"#fencing_token = if_not_exists(#my_token, \1)",
    ),
    "a heartbeat leaves the revision": _in_change(r"#mine\.#h_revision = [^,]+, "),
    "a new lock starts its tokens at one": _in_updates(_first_token),
}
QUEUE_MUTANTS: dict[str, Mutation] = {
    "joining does not flag the lock": _in_change(r"#contended = :yes, "),
    "an acquire overtakes the queue": _in_condition(r" AND attribute_not_exists\(#contended\)"),
    "a hand-off leaves the waiter in the queue": _leave_waiter,
    "a holder may join the queue": _in_condition(r"^attribute_not_exists\(#mine\) AND "),
}


# The protocol at random, against reference locks.


def test_any_order_of_calls_faults_and_clocks_gives_the_answers_of_the_reference() -> None:
    class InMemory(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    run_state_machine_as_test(InMemory, settings=settings(max_examples=100, stateful_step_count=40))


def test_motos_dynamodb_gives_the_same_answers(dynamodb: DynamoDBClient) -> None:
    """Else the table in memory, on which the other examples ran, would be a wrong DynamoDB."""

    def make_bench() -> Bench:
        for item in dynamodb.scan(TableName=TABLE)["Items"]:
            key = {name: item[name] for name in ("pk", "sk")}
            dynamodb.delete_item(TableName=TABLE, Key=key)
        return Bench(dynamodb)

    class OverMoto(LockMachine):
        pass

    OverMoto.make_bench = staticmethod(make_bench)
    run_state_machine_as_test(OverMoto, settings=settings(max_examples=4, stateful_step_count=25))


# The queue at random, against what must hold of the table.


def test_any_order_of_arrivals_releases_and_deaths_serves_everybody_in_order() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=40, stateful_step_count=40)
    )


# The property test can fail: each wrong protocol is found by the same machine.

BUDGET = settings(
    max_examples=150,
    stateful_step_count=40,
    phases=[Phase.generate],  # no one reads the counterexample, so it need not be short
    report_multiple_bugs=False,
    print_blob=False,
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_found(name: str) -> None:
    benches: list[Bench] = []

    class Wrong(LockMachine):
        @staticmethod
        def make_bench() -> Bench:
            benches.append(Bench(MemoryTable(), mutate=MUTANTS[name]))
            return benches[-1]

    # A wrong protocol may also leave an item that makes no sense to the store.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed)):
        run_state_machine_as_test(Wrong, settings=BUDGET)
    assert benches[-1].client.mutated, "the wrong request was never sent"


@pytest.mark.parametrize("name", QUEUE_MUTANTS)
def test_a_wrong_queue_is_found(name: str) -> None:
    class Wrong(QueueMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable(), mutate=QUEUE_MUTANTS[name]))

    # Or the store goes round in circles until its retry budget ends.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed, LockStoreUnavailable)):
        run_state_machine_as_test(Wrong, settings=BUDGET)


def test_a_contender_that_does_not_wait_for_the_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
        return date_ms >= expires_at_ms - 1_500

    monkeypatch.setattr(outcomes, "is_over", is_over)

    class Hasty(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Hasty, settings=BUDGET)
