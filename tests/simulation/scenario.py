"""A scenario: a load, faults, a promise, and controls; and how one run of it is made.

A run is a function of the scenario's number, the seed and the scale. Its digest covers each line of
its trace, and at last its bill.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from tests.simulation.faults import Faults
from tests.simulation.judge import Finding
from tests.simulation.world import World, running

WRITE_DOLLARS = 0.625e-6
READ_DOLLARS = 0.125e-6
"""A unit of an on-demand table in us-east-1 (aws.amazon.com/dynamodb/pricing/on-demand)."""
Play = Callable[[World], None]
Sabotage = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A protection that is switched off, and the promise that must then be found broken.

    Attributes:
        name: what is weaker.
        breaks: the promise.
        sabotage: switches it off.
        seed: the first that finds it; `make simulate` goes on from there.
        scale: None for that of the scenario.
        faults: None for those of the scenario.
    """

    name: str
    breaks: str
    sabotage: Sabotage
    seed: int = 1
    scale: float | None = None
    faults: Faults | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of the twenty.

    Attributes:
        number: of the design's list.
        title: what happens.
        load: for people: who asks for what, at scale 1.
        promise: the sentence of README or docs that it stands for, and where that is.
        faults: what goes wrong.
        play: begins the actors, and lets the world run.
        idle_bound: seconds for which a lock may be held by no one while others wait; for actors
            that are no clients. Those of clients are judged stage by stage: see `recovery.py`.
        controls: what must be found.
        scale: in `make simulate`.
        scale_of_tests: in `make test`; None for a tenth of that.
        seeds: how many runs of it `make simulate` makes.
        conditions: patches that hold during each run, given the scale.
    """

    number: int
    title: str
    load: str
    promise: str
    faults: Faults
    play: Play
    idle_bound: float = math.inf
    controls: tuple[Control, ...] = ()
    scale: float = 0.02
    scale_of_tests: float | None = None
    seeds: int = 12
    conditions: Callable[[float], AbstractContextManager[object]] = lambda _scale: nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run has found, and what it cost."""

    number: int
    seed: int
    scale: float
    digest: str
    cpu_seconds: float
    actors: int
    virtual_seconds: float
    requests: int
    write_units: int
    read_units: int
    outcomes: dict[str, int]
    checked: dict[str, int]
    findings: tuple[Finding, ...]
    waits: tuple[float, ...]
    recovered: dict[str, tuple[float, float]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def cents(self) -> float:
        """What DynamoDB charges for the run."""
        return 100 * (self.write_units * WRITE_DOLLARS + self.read_units * READ_DOLLARS)


def run(
    scenario: Scenario,
    *,
    seed: int,
    scale: float | None = None,
    keeps_trace: bool = False,
    stops_at_first: bool = False,
) -> Result:
    """Makes one run. The same arguments make the same run, byte for byte.

    Args:
        scenario: what happens.
        seed: of all chance.
        scale: None for that of the scenario.
        keeps_trace: whether all lines of the trace are kept.
        stops_at_first: whether the run ends when a promise is broken.
    """
    scale = scenario.scale if scale is None else scale
    cpu_began = time.process_time()
    with running(seed), scenario.conditions(scale):
        world = World(
            seed=seed,
            faults=scenario.faults,
            scale=scale,
            idle_bound=scenario.idle_bound,
            keeps_trace=keeps_trace,
            stops_at_first=stops_at_first,
        )
        scenario.play(world)
        virtual_seconds = world.seconds
        if not (stops_at_first and world.judge.findings):
            world.require_accounts()
        world.engine.has_ended = True
    judge, bill, engine = world.judge, world.database.bill, world.engine
    charged = sorted(bill.requests.items())
    engine.trace("bill", f"{charged} {bill.write_units} write units, {bill.read_units} read units")
    engine.trace("outcomes", f"{sorted(judge.outcomes.items())}")
    return Result(
        number=scenario.number,
        seed=seed,
        scale=scale,
        digest=engine.digest(),
        cpu_seconds=time.process_time() - cpu_began,
        actors=len(world.sdks),
        virtual_seconds=virtual_seconds,
        requests=world.requests(),
        write_units=bill.write_units,
        read_units=bill.read_units,
        outcomes=dict(sorted(judge.outcomes.items())),
        checked=dict(sorted(judge.checked.items())),
        findings=tuple(judge.findings),
        waits=tuple(judge.waits),
        recovered=dict(sorted(world.recovery.slowest.items())),
        faults=world.count_faults(),
        figures={**world.figures, "granted in vain": world.recovery.in_vain + judge.in_vain},
        lines=tuple(engine.lines),
    )


def crashed(scenario: Scenario, *, seed: int, scale: float | None, why: str) -> Result:
    """What is known of a run that has no result."""
    numbers = "cpu_seconds actors virtual_seconds requests write_units read_units"
    nothing: Any = dict.fromkeys(numbers.split(), 0)
    return Result(
        number=scenario.number,
        seed=seed,
        scale=scenario.scale if scale is None else scale,
        digest=why,
        outcomes={},
        checked={},
        findings=(Finding("each run ends", 0.0, why),),
        waits=(),
        **nothing,
    )


def run_control(scenario: Scenario, control: Control, *, seed: int) -> Result:
    """The same with a protection switched off, until that is found."""
    return run(weakened(scenario, control), seed=seed, stops_at_first=True)


def weakened(scenario: Scenario, control: Control) -> Scenario:
    """The same scenario, of a product without a protection."""
    conditions = scenario.conditions

    @contextmanager
    def both(scale: float) -> Iterator[None]:
        with conditions(scale), control.sabotage():
            yield

    return replace(
        scenario,
        conditions=both,
        faults=control.faults or scenario.faults,
        scale=control.scale or scenario.scale,
    )


@contextmanager
def patched(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Replaces attributes of modules or classes, as `tests/model/mutant.py` lists them."""
    if not places:
        yield
        return
    (place, name, replacement), *others = places
    with patch.object(place, name, replacement), patched(*others):
        yield
