"""Guarded executions that come and go: which locks they want, how long they work, how they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from tests.simulation.engine import START
from tests.simulation.functions import Json
from tests.simulation.guard import Account
from tests.simulation.states import Execution
from tests.simulation.versions import machine
from tests.simulation.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes, and how it ends; shares are of executions, numbers are those at scale 1.

    Attributes:
        executions: how many.
        names: of locks.
        exponent: the n-th name is wanted with a weight of 1 / n^exponent.
        seconds: within which they start.
        work_seconds: mean of the work, which is exponential.
        forms: of guards, each with its weight.
        machines: that of an execution which starts now, by the form of its guard.
        failing: executions whose work fails.
        stopped: executions that are stopped, at random within `stopped_within` of their start.
        redriven: executions that were stopped and are redriven, within `redriven_within` of that.
        most_redrives: of one execution.
        frees_all: whether no lock is held at the end, and no one waits.
    """

    executions: int = 50_000
    names: int = 2_000
    exponent: float = 0.3
    seconds: float = 1_800.0
    work_seconds: float
    forms: Mapping[str, float]
    machines: Callable[[World, str], Json] = lambda _world, form: machine(form)
    failing: float = 0.05
    stopped: float = 0.0
    stopped_within: float = 60.0
    redriven: float = 0.0
    redriven_within: float = 60.0
    most_redrives: int = 3
    frees_all: bool = True

    def play(self, world: World) -> None:
        """Lets it happen in an account of its own."""
        self.happen(Account(world))

    def happen(self, account: Account) -> None:
        """Lets it happen, until all has ended and the reaper is done."""
        Workflows(account, self)
        run_until_idle(account, from_seconds=self.seconds)
        if self.frees_all:
            require_all_free(account)


class Workflows:
    """Lets a load happen in an account."""

    def __init__(self, account: Account, load: Load) -> None:
        self._account, self._load, self._world = account, load, account.world
        self._random = account.world.random
        names = range(self._world.scaled(load.names))
        self._names = [f"order/{number}" for number in names]
        self._sums = list(accumulate(1 / (number + 1) ** load.exponent for number in names))
        # The next start is planned by the one before, so that a long run needs no long agenda.
        self._count = self._left = self._world.scaled(load.executions)
        self._world.actors += self._count
        self._world.engine.after(0.0, self._start_next)

    def _start_next(self) -> None:
        number = self._count - self._left
        self._left -= 1
        self._start(f"run-{number}")
        self._world.actors -= 1
        if self._left:
            mean = self._load.seconds / self._count
            pause = -math.log(1.0 - self._random.random()) * mean
            self._world.engine.after(pause, self._start_next)

    def _start(self, name: str) -> None:
        load, random = self._load, self._random
        [form] = random.choices(list(load.forms), list(load.forms.values()))
        [lock] = random.choices(self._names, cum_weights=self._sums)
        given = {
            "lock": lock,
            "work": random.expovariate(1 / load.work_seconds),
            "fails": random.random() < load.failing,
        }
        definition = load.machines(self._world, form)
        execution = self._account.start(
            name, given, form=form, definition=definition, ended=self._ended
        )
        if random.random() < load.stopped:
            self._stop_later(execution)

    def _stop_later(self, execution: Execution) -> None:
        within = self._random.random() * self._load.stopped_within
        status = self._random.choice(["ABORTED", "TIMED_OUT"])
        self._world.engine.after(within, self._stop, execution, status, execution.redrives)

    def _stop(self, execution: Execution, status: str, redrives: int) -> None:
        if execution.status == "RUNNING" and execution.redrives == redrives:
            self._world.engine.faults["stopped executions"] += 1
            execution.end(status)

    def _ended(self, execution: Execution, status: str) -> None:
        load, random = self._load, self._random
        may_go_on = status in {"ABORTED", "TIMED_OUT"} and execution.redrives < load.most_redrives
        if may_go_on and random.random() < load.redriven:
            self._world.actors += 1
            later = random.random() * load.redriven_within
            self._world.engine.after(later, self._redrive, execution)

    def _redrive(self, execution: Execution) -> None:
        self._world.engine.faults["redrives"] += 1
        delay = self._account.step_functions.buckets["RedriveExecution"].reserve()
        self._world.engine.after(delay, execution.redrive)
        if self._random.random() < self._load.stopped:
            self._stop_later(execution)


def run_until_idle(account: Account, *, from_seconds: float, at_most: float = 7_200) -> None:
    """Lets the world run until then, and until the reaper has done all of its work.

    It may take `at_most` seconds after that moment of the run.
    """
    wait_until_idle(account, from_seconds=from_seconds)
    account.world.run(at_most=from_seconds + at_most)
    functions = dict(sorted(account.functions.counts.items()))
    account.world.figures.update(
        transitions=account.step_functions.transitions, functions=functions
    )


def wait_until_idle(account: Account, *, from_seconds: float) -> None:
    """The run is not over before the reaper has done all of its work."""
    world = account.world
    world.actors += 1

    def look() -> None:
        # An execution that ends later may still have an event.
        is_last = world.actors == 1
        if is_last and account.queue.is_empty() and account.bus.is_idle():
            world.actors -= 1
        else:
            world.engine.after(10.0, look)

    world.engine.at(START + from_seconds, look)


def start_all(
    account: Account,
    moments: list[float],
    given: Callable[[int], Json],
    *,
    form: str,
    definition: Json | None = None,
    ended: list[float] | None = None,
) -> None:
    """Starts an execution at each of these moments, in seconds from the beginning, with its input.

    They have the machine with that form, or another one of this definition. The moments at which
    they end are added to `ended`.
    """
    world, kind = account.world, form.replace(" ", "-")
    world.actors += len(moments)

    def start(number: int) -> None:
        name = f"{kind}-{number}"
        account.start(name, given(number), form=form, definition=definition, ended=end)
        world.actors -= 1

    def end(_execution: Execution, _status: str) -> None:
        if ended is not None:
            ended.append(world.seconds)

    for number, moment in enumerate(moments):
        world.engine.at(START + moment, start, number)


def require_all_free(account: Account) -> None:
    """At the end of a run no lock is held, no one waits, and the reaper has given up no message."""
    account.judge.require_all_free()
    require_no_dead_letter(account)


def require_no_dead_letter(account: Account) -> None:
    dead = account.queue.dead
    account.judge.require("no dead letter", not dead, f"{len(dead)} dead letters")
