"""How many pages a reader opens to follow a call: modules, functions, and frames on the way to AWS.

Each budget is what the path costs today; that of functions leaves room for a few. A path that grows
fails: merge what always goes together, or raise the figure and say why. Counted are the modules of
`fairlock` and `lambdas` of which a function runs, and the deepest stack of their frames at a
request.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from traceback import walk_stack
from types import FrameType
from typing import Any

import pytest
from aws_durable_execution_sdk_python import durable_execution
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestRunner

from fairlock.client.lock_client import LockClient
from fairlock.durable import hold
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from lambdas import acquire, reap, release, runtime
from tests.support import LambdaContextStub
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.checkout import ROOT
from tests.support.faulty_table import FaultyTable, meanwhile

OURS = (f"{ROOT}/fairlock/", f"{ROOT}/lambdas/")
NOT_ON_THE_WAY = f"{ROOT}/fairlock/testing/"
ANNA = {"lock_name": "a", "owner_id": "anna-0123456789abcdef", "execution_arn": VALID_EXECUTION}
BEN = {**ANNA, "owner_id": "ben-0123456789abcdef", "execution_arn": f"{VALID_EXECUTION}2"}


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
        here = sys._getframe()  # noqa: SLF001 - there is no other way to count
        depth = sum(is_ours(frame) for frame, _ in walk_stack(here))
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
    status: str = "RUNNING"

    def client(self, service: str) -> Any:  # noqa: ANN401 - stands for clients of boto3
        note = meanwhile((), lambda: self.way.note_request("dynamodb"))
        return FaultyTable(self.table, note) if service == "dynamodb" else self

    def send_task_success(self, **_request: object) -> None:
        self.way.note_request("engine")

    def describe_execution(self, **_request: object) -> dict[str, Any]:
        self.way.note_request("engine")
        return {"status": self.status, "stopDate": datetime(2020, 1, 1, tzinfo=UTC)}

    def acquire(self, request: dict[str, Any]) -> dict[str, Any]:
        """The function, as a durable function invokes it."""
        self.way.note_request("engine")
        return {"acquired": True, "fencing_token": 7, **request}

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        self.way.note_request("engine")
        return {"released": True, **request}

    class exceptions:  # noqa: N801 - as boto3 has it
        class ExecutionDoesNotExist(Exception):  # noqa: N818 - same
            """Never raised."""

    @contextmanager
    def walked(self, *, in_new_threads: bool = False) -> Iterator[Way]:
        self.way = way = Way()
        gc.collect()  # The end of a lock that another test has dropped is no part of the way.
        before = sys.getprofile()
        if in_new_threads:
            threading.setprofile(way.note_call)
        sys.setprofile(way.note_call)
        try:
            yield way
        finally:
            sys.setprofile(before)
            threading.setprofile(None)
            self.way = Way()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench, clock = Bench(), ManualClock()
    # On a busy machine a lease would be over in the middle of a way, which is longer then.
    for reading in ("monotonic", "wall_ms", "wait"):
        monkeypatch.setattr(runtime._CLOCK, reading, getattr(clock, reading))  # noqa: SLF001 - the functions' own
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", "locks")
    monkeypatch.setenv("FAIRLOCK_REAP_QUEUE_URL", "queue")
    monkeypatch.setattr(runtime, "_client", bench.client)
    monkeypatch.setattr("lambdas.reap_messages.send_message", lambda *_: None)
    warm = {**ANNA, "lock_name": "warm"}
    answer(acquire.handler, warm)
    answer(release.handler, warm)
    return bench


def answer(handler: Any, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - Powertools wraps it
    told: dict[str, Any] = handler(request, LambdaContextStub())
    return told


def reap_message(execution_arn: str) -> dict[str, Any]:
    body = json.dumps({"detail": {"executionArn": execution_arn, "redriveCount": 0}})
    record = {"messageId": "1", "eventSource": "aws:sqs", "receiptHandle": "r", "body": body}
    return {"Records": [{**record, "attributes": {"ApproximateReceiveCount": "1"}}]}


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


def reap_of_a_holder(bench: Bench) -> Way:
    release_with_a_hand_off(bench)
    bench.status = "ABORTED"
    with bench.walked() as way:
        answer(reap.handler, reap_message(BEN["execution_arn"]))
    return way


def acquire_by_a_client(bench: Bench) -> Way:
    with LockClient("locks", client=bench.client("dynamodb")) as locks:
        locks.acquire("warm").release()
        with bench.walked() as way:
            lock = locks.acquire("b")
        lock.release()
    return way


def release_by_a_client(bench: Bench) -> Way:
    with LockClient("locks", client=bench.client("dynamodb")) as locks:
        locks.acquire("warm").release()
        lock = locks.acquire("b")
        with bench.walked() as way:
            assert lock.release()
    return way


def hold_of_a_durable_function(bench: Bench) -> Way:
    def body(_event: object, context: Any) -> int:  # noqa: ANN401 - the SDK's
        with hold(context, "c", service=bench) as lock:
            return lock.fencing_token

    runner: Any = DurableFunctionTestRunner(durable_execution(body))  # its `close` has no types
    try:
        with bench.walked(in_new_threads=True) as way:
            assert runner.run(input='"x"', timeout=30).result == "7"
    finally:
        runner.close()
        loop = runner._scheduler._loop  # noqa: SLF001 - the runner leaves it open
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    return way


# The way: modules, functions, requests, frames to the table, frames to a workflow engine.
BUDGETS: dict[str, tuple[Callable[[Bench], Way], tuple[int, ...]]] = {
    "acquire, by its function": (acquire_by_its_function, (16, 110, 2, 6, 0)),
    "release with a hand-off, by its function": (release_with_a_hand_off, (20, 170, 5, 9, 10)),
    "reap of a holder, by its function": (reap_of_a_holder, (20, 152, 8, 11, 6)),
    "acquire, by a client": (acquire_by_a_client, (28, 151, 1, 9, 0)),
    "release, by a client": (release_by_a_client, (19, 75, 1, 13, 0)),
    "hold of a durable function": (hold_of_a_durable_function, (4, 42, 2, 0, 5)),
}


def too_long(way: Way, budget: tuple[int, ...]) -> dict[str, object]:
    """What of a way is over its budget, with the modules to look at."""
    names = ("modules", "functions", "requests", "frames to the table", "frames to an engine")
    over = {n: (c, b) for n, c, b in zip(names, way.cost(), budget, strict=True) if c > b}
    return {**over, "modules are": sorted(way.modules)} if over else {}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_way_through_the_code_is_no_longer_than_its_budget(bench: Bench, name: str) -> None:
    walk, budget = BUDGETS[name]
    assert too_long(walk(bench), budget) == {}


def test_a_way_that_grows_by_one_frame_is_found(bench: Bench) -> None:
    way = acquire_by_its_function(bench)
    *others, table, engine = way.cost()
    assert list(too_long(way, (*others, table - 1, engine))) == [
        "frames to the table",
        "modules are",
    ]
