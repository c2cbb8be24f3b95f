"""No ghost holds a lock after an outage: a request that was given up, and was delivered late.

`OUTAGES=20 pytest tests/clocks/test_outages.py` lives through so many of each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest

from fairlock.protocol import grants, outcomes, waiters
from fairlock.protocol.admission import not_outdated
from fairlock.protocol.schema import Condition
from fairlock.store import acquire, queue
from fairlock.testing.fake_table import MemoryTable
from tests.clocks.outages import KINDS, ghosts_of, of_an_invocation
from tests.support import FakeClock
from tests.support.store_bench import Bench, claim_whatever_has_ended

OUTAGES: Final = int(os.environ.get("OUTAGES", "3"))
_NEVER_MS: Final = 10**15


def never_outdated(_sent_at_ms: int) -> Condition:
    return not_outdated(_NEVER_MS)


def fresh(*_: object, **__: object) -> bool:
    return False


_WRITES: Final = ((grants, "not_outdated", never_outdated),)
_JOINS: Final = ((waiters, "not_outdated", never_outdated),)
_CLAIMS: Final = ((acquire, "write_claim", claim_whatever_has_ended),)
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


def test_a_direct_caller_that_does_not_say_when_it_called_is_unprotected() -> None:
    bench = Bench(MemoryTable(), FakeClock())
    assert of_an_invocation(bench, 4) == ["anna"]
