"""One simulated world: its services and processes, and the conditions under which real code runs.

`World` is what a scenario builds on. While `running` is open, Fairlock's chance is the seed's, its
ids are made from it, its threads are tasks of the engine, its handlers run in environments of the
simulated Lambda, and nothing is logged.
"""

from __future__ import annotations

import gc
import logging
import random
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest.mock import patch

from tests.simulation.dynamodb import DynamoDb
from tests.simulation.engine import START, Engine, Process
from tests.simulation.faults import Faults, NodeClock
from tests.simulation.judge import Judge
from tests.simulation.recovery import Recovery
from tests.simulation.sdk import Sdk, Wire
from tests.simulation.threads import simulated_threads
from tests.simulation.versions import lambda_runtime


@dataclass
class World:
    """All that there is in a run.

    Attributes:
        scale: 1 for the size that the scenario's name says.
        stops_at_first: whether the run is over when a promise is broken.
        actors: how many of the world's actors have not come to their end.
        figures: what a scenario measured, for the report.
    """

    seed: int
    faults: Faults
    scale: float
    idle_bound: float
    keeps_trace: bool = False
    stops_at_first: bool = False
    actors: int = 0
    sdks: list[Sdk] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(self.seed, keeps_trace=self.keeps_trace)
        self.random: Random = self.engine.random
        database = self.faults.database
        if database.slow_units is not None:  # A smaller world is as crowded.
            database = replace(database, slow_units=max(2, round(database.slow_units * self.scale)))
        network = self.faults.network
        self.database = DynamoDb(self.engine, network, database)
        self.judge = Judge(self.engine, self.idle_bound)
        self.recovery = Recovery(self.engine, self.judge, self.database.is_out)
        self.wire = Wire(self.engine, self.database, network, self.recovery.hit)
        self.database.table.sees.append(self.judge.saw)
        self.judge.allowance, self.judge.tells = self.recovery.allowance, self.recovery.saw
        if network.copies or network.late_requests:
            self.judge.late_seconds = network.late_seconds
        for begins, ends in self.faults.database.outages:
            self.engine.at(START + begins, self.goes_out, ends - begins)

    def _outage_changes(self) -> None:
        says = "answers nothing" if self.database.is_out() else "answers again"
        self.engine.trace("DynamoDB", says)
        self.recovery.looks_at_all()

    def goes_out(self, seconds: float) -> None:
        self.engine.faults["outages"] += 1
        self.database.out_until = self.engine.now + seconds
        self._outage_changes()
        self.engine.after(seconds, self._outage_changes)

    def kill(self, process: Process) -> None:
        if process.tasks and process.is_alive:
            self.engine.faults["kills"] += 1
            self.engine.trace(process.name, "KILLED")
            process.kill()
            self.recovery.look_at(process)

    def suspend(self, process: Process, seconds: float) -> None:
        """Suspends a process, as a laptop that is closed, or a machine that migrates."""
        if not process.tasks or not process.is_alive or process.suspended_until > self.engine.now:
            return
        self.engine.faults["suspensions"] += 1
        self.engine.trace(process.name, f"SUSPENDED for {seconds:.0f} s")
        process.suspend(seconds)
        self.recovery.look_at(process)
        # A little before the process itself goes on: its first step is judged as of a living one.
        self.engine.at(process.suspended_until, self.recovery.look_at, process)

    @property
    def seconds(self) -> float:
        """How long the run has lasted, in its own time."""
        return self.engine.now - START

    def scaled(self, number: int) -> int:
        """So many at this scale, and one at least."""
        return max(1, round(number * self.scale))

    def process(self, name: str) -> Process:
        """A new process, with clocks of its own."""
        process = Process(self.engine, name)
        process.clock = NodeClock(self.engine, self.faults.clocks, process)
        return process

    def sdk(self) -> Sdk:
        """The DynamoDB client of a new process; its requests are counted."""
        sdk = Sdk(self.wire)
        self.sdks.append(sdk)
        return sdk

    def begin(self, seconds: float, process: Process, run: Callable[[], object]) -> None:
        """Lets an actor begin at a moment of the run. The run is over when all have ended."""
        self.actors += 1
        self.engine.at(START + seconds, process.start, lambda: self._act(run))

    def _act(self, run: Callable[[], object]) -> None:
        try:
            run()
        finally:
            self.actors -= 1

    def is_over(self) -> bool:
        """Whether all actors have come to their end, or enough is known."""
        return not self.actors or (self.stops_at_first and bool(self.judge.findings))

    def run(self, *, at_most: float) -> None:
        """Lets the world run until all actors have ended, for so many seconds at most."""
        self.engine.run(START + at_most, self.is_over)
        self.judge.require(
            "no waiter forgotten",
            self.is_over(),
            f"{self.actors} actors have not come to an end after {at_most:.0f} s",
        )

    def require_accounts(self) -> None:
        """At the end: what has not ended is judged as it is, and every request is accounted for."""
        self.recovery.end()
        self.engine.run(self.engine.now + 60)
        self.wire.require_accounts(self.judge, sum(sdk.sent for sdk in self.sdks))


@contextmanager
def running(seed: int) -> Iterator[None]:
    """The conditions of a run; all chance of Fairlock's code is the seed's."""
    ids = Random(seed ^ 0x5EED)  # noqa: S311 - names, not secrets
    was_collecting, level = gc.isenabled(), logging.root.manager.disable
    state = random.getstate()
    random.seed(seed)
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()  # The engine collects, at the same step of each run.
    try:
        with (
            simulated_threads(),
            lambda_runtime(),
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4)),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", ResourceWarning)  # Killed processes drop their locks.
            yield
    finally:
        random.setstate(state)
        logging.disable(level)
        if was_collecting:
            gc.enable()
