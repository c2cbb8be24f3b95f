"""How many pages a reader opens to follow a call: modules, functions, and frames on the way to AWS.

Each budget is what the path costs today; that of functions leaves room for a few. A path that grows
fails: merge what always goes together, or raise the figure and say why. Counted are the modules of
`fairlock` and `lambdas` of which a function runs, and the deepest stack of their frames at a
request.

What each way needs: a handler and `runtime`; the three pages of the JSON (`requests`, `rules`,
`answers`); the edge to AWS (`lock_table`, `retry`), and `executions` for a push; the `clock`, with
AWS's time and the end of a lease; an operation and its `context`; of the protocol the write
(`grants` or `leaving`), its conditions (`admission`), the nouns (`model`) and the record (`items`,
`schema`), and the claim of a workflow (`claims`). A call of a client or a lock passes `errors`, one
frame (`explained`: what a wrong argument is told).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fairlock.client.lock_client import LockClient
from fairlock.testing.fake_table import MemoryTable
from lambdas import acquire, release, runtime
from tests.support import FakeClock, LambdaContextStub
from tests.support.bad_inputs import VALID_EXECUTION

ROOT = Path(__file__).resolve().parents[2]
OURS = (f"{ROOT}/fairlock/", f"{ROOT}/lambdas/")
NOT_ON_THE_WAY = f"{ROOT}/fairlock/testing/"
ANNA = {"lock_name": "a", "owner_id": "anna-0123456789abcdef", "execution_arn": VALID_EXECUTION}
BEN = {**ANNA, "owner_id": "ben-0123456789abcdef", "execution_arn": f"{VALID_EXECUTION}2"}
BUDGETS = {
    # The way: modules, functions, requests, frames to the table, frames to a workflow engine.
    "acquire, by its function": (16, 110, 2, 6, 0),
    "release with a hand-off, by its function": (20, 170, 5, 10, 11),
    "acquire, by a client": (28, 151, 1, 10, 0),
    "release, by a client": (19, 75, 1, 14, 0),
}


def is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(OURS) and not file.startswith(NOT_ON_THE_WAY)


@dataclass
class Way:
    """What a call has used of our code."""

    modules: set[str] = field(default_factory=set)
    functions: set[object] = field(default_factory=set)
    requests: int = 0
    frames: dict[str, int] = field(default_factory=dict)

    def note_call(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_ours(frame):
            self.modules.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))
            self.functions.add(frame.f_code)

    def note_request(self, service: str) -> None:
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way to count
        depth = 0
        while frame is not None:
            depth += is_ours(frame)
            frame = frame.f_back
        self.requests += 1
        self.frames[service] = max(depth, self.frames.get(service, 0))

    def cost(self) -> tuple[int, int, int, int, int]:
        table, engine = (self.frames.get(service, 0) for service in ("dynamodb", "engine"))
        return len(self.modules), len(self.functions), self.requests, table, engine


@dataclass
class Bench:
    """The functions and a client over a table in memory, and a caller that walks at this moment."""

    table: MemoryTable = field(default_factory=MemoryTable)
    way: Way = field(default_factory=Way)

    def client(self, service: str) -> Any:  # noqa: ANN401 - stands for clients of boto3
        return Requests(self, "dynamodb", self.table) if service == "dynamodb" else self

    def send_task_success(self, **_request: object) -> None:
        self.way.note_request("engine")

    @contextmanager
    def walked(self) -> Iterator[Way]:
        self.way = way = Way()
        gc.collect()  # The end of a lock that another test has dropped is no part of the way.
        before = sys.getprofile()
        sys.setprofile(way.note_call)
        try:
            yield way
        finally:
            sys.setprofile(before)


@dataclass
class Requests:
    """An AWS client that counts."""

    bench: Bench
    service: str
    inner: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an operation of boto3
        operation = getattr(self.inner, name)
        if name in {"exceptions", "meta"}:
            return operation

        def send(**request: Any) -> Any:  # noqa: ANN401 - same
            self.bench.way.note_request(self.service)
            return operation(**request)

        return send


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench, clock = Bench(), FakeClock()
    # On a busy machine a lease would be over in the middle of a way, which is longer then.
    for reading in ("monotonic", "wall_ms", "wait"):
        monkeypatch.setattr(runtime._CLOCK, reading, getattr(clock, reading))  # noqa: SLF001 - the functions' own
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setattr(runtime, "_client", bench.client)
    warm = {**ANNA, "lock_name": "warm"}
    answer(acquire.handler, warm)
    answer(release.handler, warm)
    return bench


def answer(handler: Any, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - Powertools wraps it
    told: dict[str, Any] = handler(request, LambdaContextStub())
    return told


def acquire_by_its_function(bench: Bench) -> Way:
    with bench.walked() as way:
        assert answer(acquire.handler, ANNA)["acquired"]
    return way


def release_with_a_hand_off(bench: Bench) -> Way:
    answer(acquire.handler, ANNA)
    answer(acquire.handler, {**BEN, "queue": True, "task_token": "token-ben-" + "x" * 40})
    with bench.walked() as way:
        assert answer(release.handler, ANNA)["released"]
    return way


def acquire_and_release_by_a_client(bench: Bench) -> tuple[Way, Way]:
    with LockClient("locks", client=bench.client("dynamodb")) as locks:
        locks.acquire("warm").release()
        with bench.walked() as acquired:
            lock = locks.acquire("b")
        with bench.walked() as released:
            assert lock.release()
    return acquired, released


WALKS: dict[str, Callable[[Bench], Way]] = {
    "acquire, by its function": acquire_by_its_function,
    "release with a hand-off, by its function": release_with_a_hand_off,
    "acquire, by a client": lambda bench: acquire_and_release_by_a_client(bench)[0],
    "release, by a client": lambda bench: acquire_and_release_by_a_client(bench)[1],
}


def too_long(way: Way, budget: tuple[int, ...]) -> dict[str, object]:
    """What of a way is over its budget, with the modules to look at."""
    names = ("modules", "functions", "requests", "frames to the table", "frames to an engine")
    over = {n: (c, b) for n, c, b in zip(names, way.cost(), budget, strict=True) if c > b}
    return {**over, "modules are": sorted(way.modules)} if over else {}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_way_through_the_code_is_no_longer_than_its_budget(bench: Bench, name: str) -> None:
    assert too_long(WALKS[name](bench), BUDGETS[name]) == {}


def test_a_way_that_grows_by_one_frame_is_found(bench: Bench) -> None:
    way = acquire_by_its_function(bench)
    *others, table, engine = way.cost()
    assert list(too_long(way, (*others, table - 1, engine))) == [
        "frames to the table",
        "modules are",
    ]
