"""Tests that mostly wait run at the same time: all are begun first, and judged later."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import pytest

from tests.e2e.deployment import Deployment

TIMES: Final = int(os.environ.get("FAIRLOCK_TIMES", "20")) // 2
"""How often each of them is played: `make test` does with once, `make lifetimes` measures."""
LONGEST_SECONDS: Final = 600
Figures = Mapping[str, float]
"""Seconds that a test has measured, by what they were."""
_RUNS: Final = pytest.StashKey[dict[str, list[Future[Figures | None]]]]()
_TOGETHER: Final[set[object]] = set()
_ALONE: Final[set[object]] = set()
_Test = TypeVar("_Test", bound=Callable[..., Figures | None])


def together(test: _Test) -> _Test:
    """A test that is begun with all others of its kind. It gets the deployment, and no fixture.

    What it returns are figures, for the summary of the run.
    """
    _TOGETHER.add(test)
    return test


def alone(test: _Test) -> _Test:
    """A test that measures: it begins when all that were begun together have ended."""
    _ALONE.add(test)
    return test


def in_turn(item: pytest.Item) -> int:
    """Sorts the tests: what was begun together needs time, and what measures comes last."""
    function = getattr(item, "function", None)
    return (function in _TOGETHER) + 2 * (function in _ALONE)


@contextmanager
def begun(session: pytest.Session, deployment: Deployment) -> Iterator[None]:
    """Begins all of these tests."""
    items = [
        item
        for item in session.items
        if isinstance(item, pytest.Function) and item.function in _TOGETHER
    ]
    runs = session.stash.setdefault(_RUNS, {})
    pool = ThreadPoolExecutor(1 + TIMES * len(items))
    try:
        if items:
            warm_up(deployment)
        for item in items:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            play = partial(item.function, deployment, **parameters)
            runs[item.nodeid] = [pool.submit(play) for _ in range(TIMES)]
        yield
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def judge(item: pytest.Function) -> bool | None:
    """Waits for a test that was begun, and raises what it has raised; None of any other test.

    Before a test that measures, it waits for all of them.
    """
    begun_runs = item.session.stash.get(_RUNS, {})
    if item.function in _ALONE:
        for run in chain.from_iterable(begun_runs.values()):
            run.exception(LONGEST_SECONDS)
    runs = begun_runs.get(item.nodeid)
    if runs is None:
        return None
    measured: dict[str, list[float]] = defaultdict(list)
    for figures in [run.result(LONGEST_SECONDS) for run in runs]:
        for what, seconds in (figures or {}).items():
            measured[what].append(seconds)
    for what, each in measured.items():
        item.user_properties.append(("figures", f"{what}: {spread(each)}"))
    return True


def spread(seconds: Sequence[float]) -> str:
    """How often something was measured, and how long it took."""
    ordered = sorted(seconds)
    p95 = ordered[round(0.95 * (len(ordered) - 1))]
    return (
        f"n = {len(ordered)}, median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, "
        f"max {ordered[-1]:.2f} s"
    )


def warm_up(deployment: Deployment) -> None:
    """Shows the embedded AWS that these functions are quick: it starts few environments of them."""
    for operation in ("Acquire", "Heartbeat", "Release") * 2:
        deployment.invoke(operation, lock_name="warm-up", owner_id="no one at all...")
