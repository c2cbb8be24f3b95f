"""Fuzzed calls of the Python clients, over a table in memory."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from inspect import isawaitable
from io import StringIO
from random import Random
from typing import Any, Final
from unittest.mock import patch

from fairlock import AsyncLockClient, Lock, LockClient
from fairlock.errors import InvalidRequest
from fairlock.testing import ManualClock
from fairlock.testing.fake_async_client import _Awaitable
from fairlock.testing.fake_table import MemoryTable
from tests.fuzz import findings as kinds
from tests.fuzz.findings import LOCKS, MARK, Findings, captured_log, hostile, leaks, shown
from tests.support import acquire, store_over
from tests.support.faulty_table import FaultyTable, fail_some, lost_reply, refusal

_CALLS_PER_CLIENT: Final = 100
_SHARE: Final = 0.02
_REFUSALS: Final = ("AccessDeniedException", "ThrottlingException")
_SETTINGS: Final[dict[str, Any]] = {
    "lease": 30,
    "max_wait": 0,
    "owner_name": "a host",
    "heartbeat_every": float("inf"),
    "safe_period": 1,
    "longest_poll": 5,
    "max_workers": 4,
    "best_effort_release": False,
    "on_event": None,
}
_OPTIONS: Final[dict[str, Any]] = {
    "lease": 20,
    "limit": 2,
    "data": {"job": 7},
    "owner_name": "another",
    "on_lost": None,
    "on_danger": None,
}
_WAYS: Final[tuple[dict[str, Any], ...]] = (
    *({}, {}),
    {"shared": True},
    {"only_newest": 7},
    {"only_newest": True},
    {"max_hold": 600},
    {"shared": True, "max_hold": 600},
)


def failing_table(random: Random) -> FaultyTable:
    """A table in memory of which any request may fail."""
    fails = fail_some(_SHARE, random, lambda: [lost_reply(), *map(refusal, _REFUSALS)])
    return FaultyTable(MemoryTable(), fails)


@dataclass
class Calls:
    """One client, the locks that it holds, and calls of both with arguments of any kind."""

    random: Random
    table: FaultyTable
    findings: Findings
    output: StringIO
    is_async: bool
    clock: ManualClock = field(default_factory=ManualClock)
    held: list[Any] = field(default_factory=list)

    async def make(self, most: int) -> None:
        """Makes a client and calls of it, so many in all, and judges each of them."""
        client = await self._judged("a client", self._client)
        if client is None:
            client = self._client(share=0)
        for _ in range(most - 1):
            await self._judged(*self._next(client))
        self.table.will()  # So that it can be closed.
        closed = client.close()
        if isawaitable(closed):
            await closed

    def _client(self, share: float = 0.05) -> Any:  # noqa: ANN401 - either client
        settings = self._spoilt(_SETTINGS, share=share)
        settings.setdefault("heartbeat_every", float("inf"))
        settings.setdefault("safe_period", 1)
        if self.is_async:
            return AsyncLockClient("locks", client=_Awaitable(self.table), **settings)  # type: ignore[arg-type]  # replaces one
        return LockClient("locks", client=self.table, clock=self.clock, **settings)  # type: ignore[arg-type]  # replaces one

    async def _judged(self, name: str, call: Callable[[], Any | Awaitable[Any]]) -> Any:  # noqa: ANN401 - what the call returned
        findings, writes, answer = self.findings, self.table.writes, None
        try:
            answer = call()
            if isawaitable(answer):
                answer = await answer
            elif isinstance(answer, Iterator):
                answer = list(answer)
            elif isinstance(answer, AsyncIterator):
                answer = [each async for each in answer]
        except Exception as error:  # noqa: BLE001 - to judge them is the purpose
            findings.judge_error(error, name)
            if isinstance(error, InvalidRequest) and self.table.writes != writes:
                findings.add(kinds.WRITES, f"{name} -> {error}")
        else:
            findings.outcomes["returned"] += 1
            if isinstance(answer, Lock) or hasattr(answer, "fencing_token"):
                self.held = [*self.held[-5:], answer]
            if leaks(repr(answer)):
                findings.add(kinds.SHOWN, f"{name} -> {answer!r}")
        findings.judge_output(self.output, name)
        return answer

    def _next(self, client: Any) -> tuple[str, Callable[[], Any]]:  # noqa: ANN401 - either client
        """A call's name, and the call."""
        self.clock.advance(self.random.choice((0, 0, 1, 30)))
        if self.held and self.random.random() < 0.5:
            return self._of_lock(self.random.choice(self.held))
        name: Any = self.random.choice(LOCKS)
        if self.random.random() < 0.3:
            name = hostile(self.random)
        if self.random.random() < 0.15:
            return self._of_operator(client, name)
        ways = self.random.choice(_WAYS)
        options = self._spoilt({**_OPTIONS, **ways}, share=0.2)
        how = self.random.choice(("acquire", "try_acquire", "longest_wait"))
        if how == "try_acquire":
            options.pop("only_newest", None)  # None would not tell busy from superseded.
        if how == "longest_wait":
            return how, lambda: client.longest_wait(options.get("lease"))
        if how == "acquire":
            options["max_wait"] = 0 if self.random.random() < 0.8 else hostile(self.random)
        return f"{how} {shown(name)[:80]} {shown(options)[:200]}", lambda: getattr(client, how)(
            name, **options
        )

    def _of_operator(self, client: Any, name: Any) -> tuple[str, Callable[[], Any]]:  # noqa: ANN401 - either client, any name
        """Another caller sees locks, takes one away, or goes on with one."""
        random = self.random
        state = store_over(self.table.inner, self.clock).read_state(LOCKS[0])
        tokens = [holder.fencing_token for holder in state.holders] or [1]
        forced = {"fencing_token": random.choice(tokens), "reason": "why", "requested_by": "olga"}
        for argument in forced:
            if random.random() < 0.2:
                forced[argument] = hostile(random)
        owner_ids = [held.owner_id for held in self.held] or [f"{MARK * 4}-no one"]
        value = hostile(random) if random.random() < 0.3 else None
        changed = {"reason": forced["reason"], "requested_by": forced["requested_by"]}
        paced = self._spoilt({"burst": 3}, share=0.3)
        paced["rate"] = hostile(random) if random.random() < 0.3 else (10, 60)
        calls: dict[str, Callable[[], Any]] = {
            "describe": lambda: client.describe(name),
            "list": lambda: client.list(value),
            "force_release": lambda: client.force_release(name, **forced),
            "pause": lambda: client.pause(name, **changed),
            "set_limit": lambda: client.set_limit(name, value or random.choice((1, 3)), **changed),
            "resume": lambda: client.resume(name, **changed),
            "pace": lambda: client.pace(name, max_wait=0, **paced),
            "hold_all": lambda: _hold_all(client, value or [name, *LOCKS[3:]]),
            "adopt": lambda: client.adopt(name, value or random.choice(owner_ids)),
            "release by owner_id": lambda: client.release(name, value or random.choice(owner_ids)),
        }
        how = random.choice(list(calls))
        return f"{how} {shown(name)[:80]} {shown(forced)[:200]}", calls[how]

    def _of_lock(self, lock: Any) -> tuple[str, Callable[[], Any]]:  # noqa: ANN401 - either kind
        value = hostile(self.random)
        item = {"Put": {"TableName": "t", "Item": {"pk": {"S": "p"}, "sk": {"S": "s"}}}}
        items = [item] if self.random.random() < 0.5 else value
        calls: dict[str, Callable[[], Any]] = {
            "release": lock.release,
            "check": lock.check,
            "repr": lambda: repr(lock),
            "heartbeat": lambda: lock.heartbeat(**self._spoilt({"lease": 20}, share=0.5)),
            "heartbeat with data": lambda: lock.heartbeat(data=value),
            "transact_write": lambda: lock.transact_write(items),
            "fence_condition": lambda: bool(lock.fence_condition(value)),
        }
        name = self.random.choice(list(calls))
        return f"{name} {shown(value)[:200]}", calls[name]

    def _spoilt(self, valid: dict[str, Any], *, share: float) -> dict[str, Any]:
        """Some of the arguments, each of them of any kind now and then."""
        return {
            name: hostile(self.random) if self.random.random() < share else value
            for name, value in valid.items()
            if self.random.random() < 0.5
        }


def _hold_all(client: Any, names: Any) -> Any:  # noqa: ANN401 - either client, names of any kind
    """Holds several locks for a moment."""

    async def held() -> None:
        async with client.hold_all(names, max_wait=0):
            pass

    if isinstance(client, AsyncLockClient):
        return held()
    with client.hold_all(names, max_wait=0):
        return None


def fuzz_clients(calls: int, *, seed: int) -> Findings:
    """Makes so many calls, a fifth of them of the asynchronous client, and judges each of them."""
    return asyncio.run(_fuzz(calls, seed))


async def _fuzz(calls: int, seed: int) -> Findings:
    random, findings = Random(seed), Findings()  # noqa: S311 - it is to be repeatable
    with _environment() as output:
        for number in range(0, calls, _CALLS_PER_CLIENT):
            is_async = number // _CALLS_PER_CLIENT % 5 == 4
            made = Calls(random, failing_table(random), findings, output, is_async)
            _fill(made.table.inner, made.clock)
            await made.make(min(_CALLS_PER_CLIENT, calls - number))
    return findings


def _fill(table: MemoryTable, clock: ManualClock) -> None:
    """Locks that others hold already."""
    for number, name in enumerate(LOCKS[:2]):
        request = acquire("x", lock_name=name, owner_id=f"{MARK * 4}-foreign-{number}", limit=2)
        store_over(table, clock).acquire(request)


@contextmanager
def _environment() -> Iterator[StringIO]:
    """Owner ids that are recognized, and all that is printed and logged."""
    output, numbers = StringIO(), itertools.count()
    with (
        patch.object(uuid, "uuid4", lambda: f"{MARK * 4}-client-{next(numbers)}"),
        redirect_stdout(output),
        redirect_stderr(output),
        captured_log(output),
    ):
        yield output
