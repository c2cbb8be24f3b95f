"""No ghost holds a lock after an outage: a request that was given up, and was delivered late.

`OUTAGES=20 pytest tests/clocks/test_outages.py` lives through so many of each kind.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol import grants, outcomes, waiters
from fairlock.protocol.admission import not_outdated
from fairlock.protocol.schema import Condition
from fairlock.store import acquire as acquiring
from fairlock.store import queue
from fairlock.testing.fake_table import MemoryTable
from fairlock.wire.requests import parse_acquire
from tests.support import LOCK, FakeClock, acquire, owner, release
from tests.support.faulty_table import ENDPOINT, WRITES
from tests.support.store_bench import RUN, Bench, claim_whatever_has_ended

# Outages of 2 to 6 s, in virtual time: what was given up is delivered after all else.
#
#     anna     asks ┄ time-out ┄ asks again ─▶ granted ─▶ released
#     ben                                                  granted ─▶ released
#     network   └┄┄┄┄┄┄┄┄┄┄┄ the kernel sends it until it is through ┄┄┄┄┄┄┄┄┄┄┄▶ delivered
#
# A ghost is what anna holds, or is handed, after that: no one knows of it.

TIME_OUT_SECONDS: Final = 1.5
GRANTS: Final = "SET #mine = :holder"
JOINS: Final = "SET #contended = :yes"
DURABLE_RUN: Final = (
    "arn:aws:lambda:us-east-1:123456789012:function:billing:1/durable-execution/run/1"
)


@dataclass
class Network:
    """The way to DynamoDB. During an outage each request is given up, and each write is kept.

    Attributes:
        cut_at: the outage begins with the first write that has this text.
        seconds: how long it lasts.
        kept: the writes that are still under way.
    """

    inner: Any
    clock: FakeClock
    cut_at: str
    seconds: float
    until_ms: int | None = None
    kept: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name == "exceptions":
            return attribute

        def call(**request: Any) -> Any:  # noqa: ANN401 - same
            if self.until_ms is None and name in WRITES and self.cut_at in str(request):
                self.until_ms = self.clock.now_ms + round(self.seconds * 1000)
            if self.until_ms is None or self.clock.now_ms >= self.until_ms:
                return attribute(**request)
            if name in WRITES:
                self.kept.append((name, copy.deepcopy(request)))
            self.clock.advance(TIME_OUT_SECONDS)
            raise ReadTimeoutError(endpoint_url=ENDPOINT)

        return call

    def deliver(self) -> None:
        """All that was given up arrives, and no one waits for the answers."""
        assert self.kept
        for name, request in self.kept:
            with suppress(ClientError):
                getattr(self.inner, name)(**request)


def answered(call: Callable[[], Any]) -> Any:  # noqa: ANN401 - an answer of the store
    """The answer to a call that is repeated as long as its outcome is unknown."""
    for _ in range(10):
        with suppress(LockStoreUnavailable):
            return call()
    raise AssertionError("the outage has no end")


def others_come_and_go(bench: Bench, **terms: Any) -> None:  # noqa: ANN401 - fields of the request
    bench.clock.advance(0.2)
    bench.store().acquire(acquire("ben", **terms))
    bench.clock.advance(0.2)
    bench.store().release(release("ben"))
    bench.clock.advance(0.2)


def of_a_write(bench: Bench, seconds: float, **terms: Any) -> list[str]:  # noqa: ANN401 - same
    """A client's acquire, or that of a function, cannot reach DynamoDB."""
    network = Network(bench.client, bench.clock, GRANTS, seconds)
    answered(lambda: bench.store(network).acquire(acquire("anna", **terms)))
    bench.clock.advance(0.2)
    bench.store().release(release("anna", execution_arn=terms.get("execution_arn")))
    others_come_and_go(bench, limit=terms.get("limit", 1))
    network.deliver()
    return bench.holders()


def of_a_permit(bench: Bench, seconds: float) -> list[str]:
    bench.store().acquire(acquire("zoe", limit=3))
    ghosts = of_a_write(bench, seconds, limit=3)
    return [name for name in ghosts if name != "zoe"]


def of_a_join(bench: Bench, seconds: float) -> list[str]:
    """The late join lands while the lock is busy again, and is handed the lock."""
    bench.store().acquire(acquire("zoe"))
    network = Network(bench.client, bench.clock, JOINS, seconds)
    waits = {"waits": True, "waiter_timeout_ms": 300_000}
    place = answered(lambda: bench.store(network).acquire(acquire("anna", **waits)))
    bench.clock.advance(0.2)
    bench.store().release(release("zoe"))
    assert bench.holders() == ["anna"]
    bench.clock.advance(0.2)
    bench.store().release(release("anna", ticket=place.entered_at_ms))
    others_come_and_go(bench)
    bench.store().acquire(acquire("carl"))
    network.deliver()
    bench.clock.advance(0.2)
    bench.store().release(release("carl"))
    return bench.holders()


def of_a_direct_write(bench: Bench, seconds: float) -> list[str]:
    """The function is there, and cannot reach DynamoDB; its caller calls again."""
    network = Network(bench.client, bench.clock, GRANTS, seconds)
    call = {"lock_name": LOCK, "owner_id": owner("anna"), "owner_name": "anna"}

    def calls() -> object:
        made = {**call, "entered_at_ms": bench.clock.now_ms}
        return bench.store(network).acquire(parse_acquire(made))

    answered(calls)
    bench.clock.advance(0.2)
    bench.store().release(release("anna"))
    others_come_and_go(bench)
    network.deliver()
    return bench.holders()


def of_an_invocation(bench: Bench, seconds: float, **fields: Any) -> list[str]:  # noqa: ANN401 - of JSON
    """The call itself cannot reach the function; the SDK sends it again."""
    call = {"lock_name": LOCK, "owner_id": owner("anna"), "owner_name": "anna", **fields}
    bench.clock.advance(seconds)
    bench.store().acquire(parse_acquire(call))
    assert bench.holders() == ["anna"]
    bench.clock.advance(0.2)
    bench.store().release(release("anna", execution_arn=fields.get("execution_arn")))
    others_come_and_go(bench)
    bench.store().acquire(parse_acquire(call))
    return bench.holders()


def of_a_direct_call(bench: Bench, seconds: float) -> list[str]:
    return of_an_invocation(bench, seconds, entered_at_ms=bench.clock.now_ms)


def of_a_direct_join(bench: Bench, seconds: float) -> list[str]:
    """The late call joins while the lock is busy again, and is handed the lock."""
    call = {"lock_name": LOCK, "owner_id": owner("anna"), "owner_name": "anna", "queue": True}
    call["entered_at_ms"] = bench.clock.now_ms
    bench.clock.advance(seconds)
    again = {**call, "entered_at_ms": bench.clock.now_ms}
    bench.store().acquire(parse_acquire(again))
    bench.clock.advance(0.2)
    bench.store().release(release("anna"))
    others_come_and_go(bench)
    bench.store().acquire(acquire("carl"))
    bench.store().acquire(parse_acquire(call))
    bench.clock.advance(0.2)
    bench.store().release(release("carl"))
    return bench.holders()


Kind = Callable[[Bench, float], list[str]]
KINDS: Final[dict[str, Kind]] = {
    "a plain lock": of_a_write,
    "a permit of a semaphore": of_a_permit,
    "a join of the queue": of_a_join,
    "a workflow, its function's write": lambda bench, seconds: of_a_write(
        bench, seconds, execution_arn=RUN
    ),
    "a workflow, its invocation": lambda bench, seconds: of_an_invocation(
        bench, seconds, execution_arn=RUN, task_token="a-task-token"
    ),
    "a durable hold, its invocation": lambda bench, seconds: of_an_invocation(
        bench, seconds, execution_arn=DURABLE_RUN, task_token="Y2FsbGJhY2s="
    ),
    "a direct caller, its function's write": of_a_direct_write,
    "a direct caller, its invocation": of_a_direct_call,
    "a direct caller that waits, its invocation": of_a_direct_join,
}


def ghosts_of(kind: str, outages: int) -> int:
    """In how many of so many outages of 2 to 6 s anna is granted what she does not know of."""
    found = 0
    for number in range(outages):
        seconds = 2 + 4 * number / max(1, outages - 1)
        bench = Bench(MemoryTable(), FakeClock())
        found += bool(KINDS[kind](bench, seconds))
    return found


OUTAGES: Final = int(os.environ.get("OUTAGES", "3"))
_NEVER_MS: Final = 10**15


def never_outdated(_sent_at_ms: int) -> Condition:
    return not_outdated(_NEVER_MS)


def fresh(*_: object, **__: object) -> bool:
    return False


_WRITES: Final = ((grants, "not_outdated", never_outdated),)
_JOINS: Final = ((waiters, "not_outdated", never_outdated),)
_CLAIMS: Final = ((acquiring, "write_claim", claim_whatever_has_ended),)
_CALLS: Final = ((outcomes, "is_outdated", fresh),)
CONTROLS: Final[dict[str, tuple[tuple[Any, str, Any], ...]]] = {
    "a plain lock": _WRITES,
    "a permit of a semaphore": _WRITES,
    "a join of the queue": _JOINS,
    "a workflow, its function's write": _WRITES,
    "a workflow, its invocation": _CLAIMS,
    "a durable hold, its invocation": _CLAIMS,
    "a direct caller, its function's write": _WRITES,
    "a direct caller, its invocation": _CALLS,
    "a direct caller that waits, its invocation": (
        *_CALLS,
        *_JOINS,
        (queue, "SLACK_MS", _NEVER_MS),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_outage_makes_a_ghost(kind: str, record_property: Callable[[str, object], None]) -> None:
    found = ghosts_of(kind, OUTAGES)
    record_property("figures", f"{kind}: {found} ghosts in {OUTAGES} outages")
    assert found == 0


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_protection_every_outage_makes_one(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, instead in CONTROLS[kind]:
        monkeypatch.setattr(module, name, instead)
    assert ghosts_of(kind, OUTAGES) == OUTAGES
