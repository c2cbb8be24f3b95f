"""The census of late writes: which of them change anything, and whether one does harm.

Random runs of the real operations (`census_run.py`), over a network that holds writes back and
keeps copies (`late_network.py`). Each write is judged (`census_judge.py`).

`python -m tests.histories --census 30000` prints the table.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.histories.census_run import STEPS, Run
from tests.histories.late_network import Landings, Mutation
from tests.model.replay import Names, naming


@dataclass
class Census:
    """What was found in many runs."""

    runs: int = 0
    seconds: float = 0
    landings: Landings = field(default_factory=Landings)
    violations: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    """The first seed of each violation and gap."""

    def lines(self) -> Iterator[str]:
        """The report."""
        yield f"{self.runs:,} runs, {self.runs / max(self.seconds, 0.001):.0f} a second"
        yield f"{'write':26}{'sent':>9}{'late':>9}{'changed':>9}"
        for name in sorted(self.landings.sent):
            counts = (self.landings.sent, self.landings.late, self.landings.changed)
            yield f"{name:26}" + "".join(f"{count[name]:9,}" for count in counts)
        for kind, found in (("known gap", self.gaps), ("violation", self.violations)):
            for what, times in found.most_common():
                yield f"{kind}: {what}: {times:,}, first with seed {self.seeds[what]}"
        yield f"{self.violations.total()} violations"


@contextmanager
def named() -> Iterator[Names]:
    """While this is open, the writes of the protocol have names."""
    names = Names()
    with naming(names):
        yield names


def run_census(
    runs: int,
    *,
    first: int = 0,
    steps: int = STEPS,
    until_found: bool = False,
    mutate: Mutation | None = None,
    only_keep_alive: bool = False,
    with_turns: bool = False,
) -> Census:
    """Plays runs with the seeds from `first` on; if wanted, until one finds something."""
    census, began = Census(), time.monotonic()
    with named() as names:
        for seed in range(first, first + runs):
            run = Run(seed, names, steps, mutate, only_keep_alive, with_turns)
            run.play()
            census.runs += 1
            census.landings.add(run.landings)
            for mine, theirs in (
                (census.violations, run.found.violations),
                (census.gaps, run.found.gaps),
            ):
                mine.update(theirs)
                for what in theirs:
                    census.seeds.setdefault(what, seed)
            if until_found and census.violations:
                break
    census.seconds = time.monotonic() - began
    return census
