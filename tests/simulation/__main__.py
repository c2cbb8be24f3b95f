"""`make simulate`: every scenario that there is, its controls, and one digest.

    make simulate                            all scenarios, some seeds each, and all controls
    make simulate SEEDS=20                   the same with 20 seeds each
    make simulate SCENARIO=9 SEED=3          that run again, with its trace
    make simulate SCENARIO=9 SEED=3 SHRINK=1 a smaller run that breaks the same promise
    make simulate SCENARIO=9 CONTROL=2       the second control of that scenario, with its trace

SCALE= sets the size, JOBS= how many processes run at once. The last line is the digest of all runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.simulation.campaign import (
    digest_of,
    line_of,
    run_all,
    save,
    shrunk,
    summaries,
    table_of,
)
from tests.simulation.concurrency import CONCURRENCY
from tests.simulation.day import DAY
from tests.simulation.deployment import DEPLOYMENT
from tests.simulation.hot_lock import HOT_LOCK
from tests.simulation.killed_handlers import KILLED_HANDLERS
from tests.simulation.lost_events import LOST_EVENTS
from tests.simulation.lost_pushes import LOST_PUSHES
from tests.simulation.maps import MAPS
from tests.simulation.mass_stop import MASS_STOP
from tests.simulation.mixed import MIXED
from tests.simulation.month import MONTH
from tests.simulation.operators import OPERATORS
from tests.simulation.outages import OUTAGE, THROTTLED
from tests.simulation.permits import PERMITS
from tests.simulation.redrives import REDRIVES
from tests.simulation.scenario import run, weakened
from tests.simulation.unreliable_network import UNRELIABLE_NETWORK
from tests.simulation.ways import WAYS
from tests.simulation.wrong_clocks import CLOCKS, SUSPENSIONS

SCENARIOS = {
    each.number: each
    for each in (
        DAY,
        HOT_LOCK,
        PERMITS,
        MASS_STOP,
        LOST_EVENTS,
        OUTAGE,
        THROTTLED,
        CONCURRENCY,
        UNRELIABLE_NETWORK,
        KILLED_HANDLERS,
        LOST_PUSHES,
        SUSPENSIONS,
        CLOCKS,
        REDRIVES,
        DEPLOYMENT,
        MIXED,
        MAPS,
        OPERATORS,
        WAYS,
        MONTH,
    )
}
FIGURES = Path("out/simulation.json")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _one(number: int, seed: int, scale: float | None) -> int:
    """Repeats one run, and prints its trace; shrinks it if that is asked for."""
    scenario, chosen = SCENARIOS[number], os.environ.get("CONTROL")
    if chosen:
        scenario = weakened(scenario, scenario.controls[int(chosen) - 1])
    result = run(scenario, seed=seed, scale=scale, keeps_trace=True)
    if result.findings and os.environ.get("SHRINK"):
        _say(line_of(result))
        result = shrunk(scenario, result, _say)
    _say("\n".join([*result.lines, line_of(result)]))
    _say(f"digest: {digest_of([result])}")
    return int(bool(result.findings))


def main() -> int:
    """Returns 1 if a promise is broken, or a control is not found."""
    seed, number = int(os.environ.get("SEED") or 1), os.environ.get("SCENARIO")
    scale = float(os.environ["SCALE"]) if os.environ.get("SCALE") else None
    if number:
        return _one(int(number), seed, scale)
    seeds = int(os.environ["SEEDS"]) if os.environ.get("SEEDS") else None
    processes = int(os.environ.get("JOBS") or 2)
    results, controls = run_all(
        SCENARIOS, first_seed=seed, seeds=seeds, scale=scale, processes=processes, tell=_say
    )
    rows, digest = summaries(SCENARIOS, results), digest_of(results)
    _say("\n".join(["", *table_of(rows), ""]))
    save(FIGURES, rows, controls, digest)
    requests = sum(result.requests for result in results)
    cpu = sum(result.cpu_seconds for result in results)
    found = sum(control.seeds is not None for control in controls)
    _say(f"{requests:,} requests, {requests / cpu:,.0f} a second of CPU time")
    _say(f"{found} of {len(controls)} controls found")
    _say(f"digest: {digest}")
    return int(found < len(controls) or any(result.findings for result in results))


if __name__ == "__main__":
    sys.exit(main())
