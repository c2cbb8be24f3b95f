"""Processes that take part in a history, and processes that keep a pace."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from typing import Final, NamedTuple
from uuid import uuid4

from fairlock import LockClient, SlotTooLate
from fairlock.aws.lock_table import LockTable
from fairlock.protocol.pace import MICROSECONDS, PaceRequest, Slot, interval_us
from fairlock.store.context import LockContext
from fairlock.store.turns import KnownPaces, Turn
from tests.histories.calls import Call
from tests.histories.faulty_endpoint import Faults, faulty_endpoint, memory_backend
from tests.histories.runs import LARGE, dynamodb_at, new_client, run_plans
from tests.support import TABLE

# Rounds of the large plans, with half of the threads in each of two processes.

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


# Processes that reserve slots of one pace at the same time, over HTTP and in real time.
#
# They are forked from a server that has imported all modules once, so that twenty cost little.

NAME: Final = "vendor"
RATE: Final = (10, 1)
HOURLY: Final = (1, 3600)
_LONGEST_WAIT_US: Final = 600 * MICROSECONDS
_SECONDS: Final = 120


class Reservation(NamedTuple):
    """One reservation; the monotonic clock is the same in all processes of a machine."""

    began: float
    ended: float
    begins_us: int


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes that begin together.

    Attributes:
        network: counts their requests.
    """

    network: Faults
    number: int
    _pool: Pool

    def reserve(self, each: int) -> list[Reservation]:
        """Each process reserves so many slots, one after the other; by the slots."""
        answers = self._pool.map_async(_reserve, [each] * self.number, chunksize=1)
        found = [one for share in answers.get(timeout=_SECONDS) for one in share]
        return sorted(found, key=lambda one: one.begins_us)

    def run_hourly(self) -> list[bool]:
        """Whether each process has run the job of this hour."""
        answers = self._pool.map_async(_runs_hourly, range(self.number), chunksize=1)
        return list(answers.get(timeout=_SECONDS))


@contextmanager
def processes(number: int) -> Iterator[Processes]:
    """Starts processes with clients of one table."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    network = Faults(share=0, seed=0)
    with faulty_endpoint(memory_backend(), network) as url:
        barrier = context.Barrier(number)
        with context.Pool(number, _begin_paced, (barrier, url)) as pool:
            yield Processes(network, number, pool)


class _Paced(NamedTuple):
    barrier: Barrier
    url: str


_paced: list[_Paced] = []


def _begin_paced(barrier: Barrier, url: str) -> None:
    _paced.append(_Paced(barrier, url))


def _client() -> LockClient:
    """Made when all processes are ready, so that none is ahead."""
    [process] = _paced
    client = new_client(dynamodb_at(process.url, tries=3), TABLE)
    process.barrier.wait(timeout=_SECONDS)
    return client


def _reserve(each: int) -> list[Reservation]:
    [process] = _paced
    context = LockContext(table=LockTable(dynamodb_at(process.url, tries=3), TABLE))
    known, found = KnownPaces(), []
    process.barrier.wait(timeout=_SECONDS)
    for _ in range(each):
        request = PaceRequest(
            name=NAME,
            reservation_id=str(uuid4()),
            interval_us=interval_us(*RATE),
            max_wait_us=_LONGEST_WAIT_US,
        )
        began = time.monotonic()
        slot = Turn(request, known).reserve(context)
        assert isinstance(slot, Slot)
        found.append(Reservation(began, time.monotonic(), slot.begins_us))
    return found


def _runs_hourly(_: int) -> bool:
    with _client() as locks:
        try:
            locks.pace("report", rate=HOURLY, max_wait=0)
        except SlotTooLate:
            return False
        return True
