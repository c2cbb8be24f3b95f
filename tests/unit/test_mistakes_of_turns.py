"""The likeliest mistakes with each way to take turns: field, rule and next step, at every door.

What tests/contracts/test_rules.py and tests/contracts/client/test_refusals.py say of all clients is
left out. Guards have theirs in tests/unit/cdk, commands in tests/unit/cli. Rows of `RIGHT` only
look wrong.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from fairlock import InvalidRequest, locked
from fairlock.durable import hold
from fairlock.testing import FakeAsyncLockClient, FakeLockClient
from fairlock.wire.requests import parse_acquire, parse_inspect, parse_pace, parse_set_limit

OWNER_ID = "o" * 16
Use = Callable[[], object]


def client(use: Callable[[Any], Any]) -> Use:
    """A client does it; a block is entered."""

    def run() -> None:
        with FakeLockClient() as locks:
            try:
                made = use(locks)
                if isinstance(made, AbstractContextManager):
                    with made:
                        pass
            finally:
                assert [locks.describe(name) for name in ("a", "x")] == [None, None]

    return run


def aio(use: Callable[[Any], Any]) -> Use:
    """A client of asyncio does it."""

    async def do() -> None:
        async with FakeAsyncLockClient() as locks:
            made = use(locks)
            if not isinstance(made, Coroutine) and isinstance(made, AbstractAsyncContextManager):
                async with made:
                    pass
            elif inspect.isawaitable(made):
                await made

    return lambda: asyncio.run(do())


def decorator(name: Any = "a", **options: Any) -> Use:  # noqa: ANN401 - mistakes are no types
    def run() -> None:
        with FakeLockClient() as locks:
            locked(name, client=locks, **options)(lambda: None)()

    return run


def durable(name: Any = "a", **options: Any) -> Use:  # noqa: ANN401 - same
    service = mock.Mock(spec=[])  # Any call of it would be an error.
    return lambda: hold(mock.Mock(), name, service=service, **options)


def function(parse: Callable[[Any], object], **fields: object) -> Use:
    return lambda: parse(fields)


def acquire(**fields: object) -> Use:
    return function(parse_acquire, **{"lock_name": "a", "owner_id": OWNER_ID, **fields})


def pace(**fields: object) -> Use:
    return function(parse_pace, **{"pace_name": "v", **fields})


def set_limit(**fields: object) -> Use:
    given = {"lock_name": "a", "limit": 3, "reason": "less", "requested_by": "olga", **fields}
    return function(parse_set_limit, **given)


def inner(**options: Any) -> Use:  # noqa: ANN401 - same
    """A block inside one with `outer` options, which another program could have written."""
    outer = options.pop("outer")

    def run() -> None:
        with FakeLockClient() as locks, locks.hold("a", **outer), locks.hold("a", **options):
            pass

    return run


def never(_lock: object, _stop: object) -> None:
    """Work that does not begin."""


BOTH = (client, aio)
YES, TEXT = "shared: must be ", "only_newest: must be true, or the version of this caller"
READS = "only_newest: must be left out with shared: readers hold the lock side by side (got 7)"
ONE = "name: must be one name; for several locks use hold_all of a client, or one hold inside the"
NOT_HERE = "is no argument; use one of "
SHORT = "max_hold: must be a number of seconds, at least 40 with a lease of 60 s ("
OUTER = "must be left out, or be that of the outer block, whose lock is entered again"
RATE = "rate: must be a pair of numbers, such as (10, 60): how many, at least 1 and whole, and in "
WHY = "reason: must tell why, a string of 1 to 512 bytes of UTF-8"

WRONG: list[tuple[str, Use, str]] = [
    # Shared
    ("a text", decorator(shared="yes"), YES),
    ("with a version", decorator(shared=True, only_newest=7), READS),
    ("with a version", durable(shared=True, only_newest=7), READS),
    ("with a version", acquire(shared=True, only_newest=7), READS),
    ("a reader asks to write", inner(outer={"shared": True}, reentrant=True),
     "shared: must be True here: the outer block shares the lock, and cannot become exclusive"),
    ("a reader asks to write, and waits", inner(outer={"shared": True}),
     "name: must not be 'a' here: this thread is inside a `with` that shares it, and a shared"),
    # Inspect
    ("a name for one lock", function(parse_inspect, name="x"),
     "name: is not a field of this request; its fields are lock_name alone, or prefix, after"),
    # Names that no one has evaluated
    *((name, of, f"{field}: must not {fault} expression that was not evaluated")
      for name, fault in (("$.id", "start with $., a JSONPath or JSONata"),
                          ("a/{% $x %}", "contain {%, a JSONPath or JSONata"))
      for field, of in (("lock_name", acquire(lock_name=name)), ("pace_name", pace(pace_name=name)),
                        ("name", durable(name)), ("name", decorator(lambda name=name: name)))),
    # Several
    *(("in hold", of(lambda c: c.hold(["a", "b"])), ONE) for of in BOTH),
    ("in hold", durable(["a", "b"]), ONE),
    ("in acquire", acquire(lock_name=["a", "b"]), f"lock_{ONE}"),
    ("in the decorator", decorator(["a", "b"]),
     "name: must be one name: for several locks decorate the function once for each, from top to"),
    *(("a version", of(lambda c: c.hold_all(["a"], only_newest=7)), f"only_newest: {NOT_HERE}")
      for of in BOTH),
    *(("reentrant", of(lambda c: c.hold_all(["a"], reentrant=True)), f"reentrant: {NOT_HERE}")
      for of in BOTH),
    # Leader
    ("no work", aio(lambda c: c.lead("x", None)), "work: must be a"),
    ("work without stop", aio(lambda c: c.lead("x", lambda _lock: None)), "work: must "),
    ("no coroutine", aio(lambda c: c.lead("x", never)),
     "work: must be a coroutine function; LockClient.lead takes a function"),
    *(("a shared one", of(lambda c: c.lead("x", never, shared=True)), f"shared: {NOT_HERE}")
      for of in BOTH),
    *(("a longest wait", of(lambda c: c.lead("x", never, max_wait=3)), f"max_wait: {NOT_HERE}")
      for of in BOTH),
    # Longest time to hold
    ("shorter than a heartbeat", decorator(max_hold=3), SHORT),
    ("a text", decorator(max_hold="10m"), "max_hold: must be a number of seconds above 0; leave"),
    ("inside", inner(outer={}, reentrant=True, max_hold=600), f"max_hold: {OUTER}"),
    ("for a function", acquire(max_hold=600), "max_hold: is not a field of this request; its "),
    # Pace
    ("of zero", pace(rate=[0, 60]), RATE),
    ("a number", pace(rate=10), RATE),
    ("an object", pace(rate={"count": 10}), RATE),
    *(("no rate", of(lambda c: c.pace("v")), "rate: is required: pace(name, rate, max_wait, bur")
      for of in BOTH),
    ("no rate", pace(), "rate: is required"),
    *(("max_hold", of(lambda c: c.pace("v", rate=(1, 1), max_hold=5)), f"max_hold: {NOT_HERE}")
      for of in BOTH),
    # Newest only
    ("a commit's hash", decorator(only_newest="f00"), TEXT),
    ("a commit's hash", durable(only_newest="f00"), TEXT),
    ("a commit's hash", acquire(only_newest="f00"), TEXT),
    ("null", acquire(only_newest=None), TEXT),
    ("too high for JSON", durable(only_newest=2**53), TEXT),
    ("skips", decorator(only_newest=7, if_taken="skip"),
     'only_newest: must be left out with if_taken="skip", which does not wait'),
    ("another one inside", inner(outer={"only_newest": 5}, reentrant=True, only_newest=6),
     f"only_newest: {OUTER}"),
    ("one inside of none", inner(outer={}, reentrant=True, only_newest=9), f"only_newest: {OUTER}"),
    # Limit and pause
    *(("a text", of(lambda c: c.set_limit("a", "3", reason="x")),
       "limit: must be a whole number from 1 to 100; pass a number, not text") for of in BOTH),
    ("a text", set_limit(limit="3"), "limit: must be a whole number from 1 to 100, 0 to pause the"),
    *(("no reason", of(lambda c: c.pause("a")), "reason: is required: pause(name, reason, ")
      for of in BOTH),
    ("an empty reason", set_limit(reason=""), WHY),
]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "text"), [pytest.param(use, text, id=mistake) for mistake, use, text in WRONG]
)
def test_a_mistake_is_told_by_field_and_rule_before_any_write(use: Use, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        use()
    assert str(refused.value).startswith(text)
    assert refused.value.rule


RIGHT: dict[str, Use] = {
    "equal versions, one inside the other": inner(
        outer={"only_newest": 5}, reentrant=True, only_newest=5
    ),
    "a plain block inside a version": inner(outer={"only_newest": 5}, reentrant=True),
    "a reader inside a reader": inner(outer={"shared": True}, reentrant=True, shared=True),
    "a reader inside a writer": inner(outer={}, reentrant=True, shared=True),
    "a longest time with a version": client(lambda c: c.hold("b", only_newest=1, max_hold=60)),
    "several, shared": client(lambda c: c.hold_all(["b", "c"], shared=True)),
    "a pace and a lock of one name": client(
        lambda c: (c.pace("b", rate=(1, 1)), c.acquire("b").release())
    ),
    "a ceiling for readers": client(
        lambda c: (c.set_limit("b", 1, reason="x"), c.acquire("b", shared=True).release())
    ),
}


@pytest.mark.parametrize("use", RIGHT)
def test_what_only_looks_like_a_mistake_works(use: str) -> None:
    RIGHT[use]()
