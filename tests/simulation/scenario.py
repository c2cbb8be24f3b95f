"""A scenario: a load, faults, a promise, and controls; and how one run of it is made.

A run is a function of the scenario's number, the seed and the scale. Its digest covers each line of
its trace, and at last its bill.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.model.contention.mutants import MUTANTS
from tests.simulation.faults import Faults
from tests.simulation.judge import Finding
from tests.simulation.world import World, running
from tests.support.weakened import Patch, patched

HOUR: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A protection that is switched off, and the promise that must then be found broken.

    Attributes:
        name: what is weaker; that of a mutant of the model, if `patches` is None.
        breaks: the promise.
        patches: switch it off.
        seed: the first that finds it; `make simulate` goes on from there.
        scale: None for that of the scenario.
        faults: None for those of the scenario.
    """

    name: str
    breaks: str
    patches: tuple[Patch, ...] | None = None
    seed: int = 1
    scale: float | None = None
    faults: Faults | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One of the twenty.

    Attributes:
        promise: the sentence of README or docs that it stands for, and where that is.
        play: begins the actors, and lets the world run.
        idle_bound: seconds for which a lock may be held by no one while others wait; for actors
            that are no clients. Those of clients are judged stage by stage: see `recovery.py`.
        scale: in `make simulate`.
        scale_of_tests: in `make test`; None for a tenth of that.
        seeds: how many runs of it `make simulate` makes.
        patches: hold during each run.
    """

    number: int
    title: str
    promise: str
    faults: Faults = field(default_factory=Faults)
    play: Callable[[World], None]
    idle_bound: float = math.inf
    controls: tuple[Control, ...] = ()
    scale: float = 0.02
    scale_of_tests: float | None = None
    seeds: int = 12
    patches: tuple[Patch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run has found, and what it cost."""

    number: int
    seed: int
    scale: float
    digest: str
    findings: tuple[Finding, ...]
    cpu_seconds: float = 0.0
    actors: int = 0
    virtual_seconds: float = 0.0
    requests: int = 0
    cents: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    waits: tuple[float, ...] = ()
    recovered: dict[str, tuple[float, float]] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = field(default=(), repr=False)

    @property
    def broken(self) -> set[str]:
        """The promises that do not hold."""
        return {finding.promise for finding in self.findings}

    def __str__(self) -> str:
        told = (
            f"scenario {self.number}, seed {self.seed}, scale {self.scale:g}: "
            f"{self.requests:,} requests in {self.cpu_seconds:.1f} s of CPU, "
            f"{self.virtual_seconds / HOUR:.2f} h simulated, {self.cents:.2f} cents; "
            f"{_counts(self.outcomes)}; {_counts(self.faults)}; {len(self.findings)} violations"
        )
        broken = [f"  BROKEN {finding.promise}: {finding.what}" for finding in self.findings]
        return "\n".join([told, *broken])


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items())) or "none"


def run(
    scenario: Scenario,
    *,
    seed: int,
    scale: float | None = None,
    keeps_trace: bool = False,
    stops_at_first: bool = False,
) -> Result:
    """Makes one run: until its end, or until a promise is broken if it `stops_at_first`.

    The same arguments make the same run, byte for byte.
    """
    scale = scenario.scale if scale is None else scale
    cpu_began = time.process_time()
    with running(seed), patched(scenario.patches):
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
    judge, database, engine = world.judge, world.database, world.engine
    units = f"{database.write_units} write units, {database.read_units} read units"
    engine.trace("bill", f"{sorted(database.requests.items())} {units}")
    engine.trace("outcomes", f"{sorted(judge.outcomes.items())}")
    return Result(
        number=scenario.number,
        seed=seed,
        scale=scale,
        digest=engine.digest(),
        findings=tuple(judge.findings),
        cpu_seconds=time.process_time() - cpu_began,
        actors=len(world.sdks),
        virtual_seconds=virtual_seconds,
        requests=database.requests.total(),
        cents=database.cents,
        outcomes=dict(sorted(judge.outcomes.items())),
        waits=tuple(judge.waits),
        recovered=dict(sorted(world.recovery.slowest.items())),
        faults=dict(sorted((+engine.faults).items())),
        figures={**world.figures, "granted in vain": world.recovery.in_vain + judge.in_vain},
        lines=tuple(engine.lines),
    )


def run_control(scenario: Scenario, control: Control, *, seed: int) -> Result:
    """The same with a protection switched off, until that is found."""
    return run(weakened(scenario, control), seed=seed, stops_at_first=True)


def weakened(scenario: Scenario, control: Control) -> Scenario:
    """The same scenario, of a product without a protection."""
    patches = MUTANTS[control.name].patches if control.patches is None else control.patches
    return replace(
        scenario,
        patches=(*scenario.patches, *patches),
        faults=control.faults or scenario.faults,
        scale=control.scale or scenario.scale,
    )
