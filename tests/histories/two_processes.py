"""Rounds of the large plans, with half of the threads in each of two processes."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Final

from fairlock import LockClient
from tests.histories.calls import Call
from tests.histories.plans import LARGE
from tests.histories.runs import dynamodb_at, new_client, run_plans
from tests.support import TABLE

_PROCESSES: Final = 2
_ROUND_SECONDS: Final = 120
Round = dict[str, list[Call]]


@contextmanager
def two_processes(endpoint_url: str) -> Iterator[Callable[[int], Round]]:
    """Yields a function that runs a round, by its number, on locks of its own."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(_PROCESSES, _begin, (spawn.Barrier(_PROCESSES), endpoint_url)) as pool:

        def run(number: int) -> Round:
            shares = pool.map_async(_work, [number] * _PROCESSES, chunksize=1)
            merged: Round = {name: [] for name in LARGE}
            for share in shares.get(timeout=_ROUND_SECONDS):
                for name in LARGE:
                    merged[name] += share[f"{name} {number}"]
            return merged

        yield run


@dataclass(frozen=True, slots=True)
class _Process:
    """What one of the processes has: two clients, one of which sends each request only once."""

    barrier: Barrier
    clients: list[LockClient]


_process: list[_Process] = []


def _begin(barrier: Barrier, endpoint_url: str) -> None:
    logging.disable(logging.CRITICAL)  # Losses are what is wanted here.
    clients = [new_client(dynamodb_at(endpoint_url, tries=tries), TABLE) for tries in (3, 1)]
    _process.append(_Process(barrier, clients))


def _work(number: int) -> Round:
    [process] = _process
    process.barrier.wait(timeout=_ROUND_SECONDS)
    plans = {f"{name} {number}": plan for name, plan in LARGE.items()}
    return dict(run_plans(process.clients, plans, seed=number))
