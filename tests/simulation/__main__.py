"""`make simulate`: every scenario that there is, its controls, and one digest.

SEED=, SCENARIO= and SCALE= repeat one run and print its trace. The last line is the digest of all.
"""

from __future__ import annotations

import hashlib
import os
import sys

from tests.simulation.hot_lock import HOT_LOCK
from tests.simulation.mass_stop import MASS_STOP
from tests.simulation.scenario import Result, Scenario, run, run_control
from tests.simulation.unreliable_network import UNRELIABLE_NETWORK

SCENARIOS = {
    each.number: each
    for each in (
        HOT_LOCK,
        MASS_STOP,
        UNRELIABLE_NETWORK,
    )
}


def _report(result: Result) -> str:
    return (
        f"scenario {result.number}, seed {result.seed}, scale {result.scale:g}: "
        f"{result.requests:,} requests in {result.seconds:.1f} s, {result.cents:.2f} cents, "
        f"{result.outcomes}, longest without a holder {max(result.idle, default=0):.1f} s, "
        f"{len(result.findings)} violations"
    )


def _controls(scenario: Scenario, seed: int) -> list[str]:
    return [
        control.name
        for control in scenario.controls
        if control.breaks
        not in {each.promise for each in run_control(scenario, control, seed=seed).findings}
    ]


def main() -> int:
    """Returns 1 if a promise is broken, or a control is not found."""
    say = sys.stdout.write
    seed, number = int(os.environ.get("SEED") or 1), os.environ.get("SCENARIO")
    scale = float(os.environ["SCALE"]) if os.environ.get("SCALE") else None
    chosen = [SCENARIOS[int(number)]] if number else list(SCENARIOS.values())
    digest, is_broken = hashlib.blake2b(digest_size=16), False
    for scenario in chosen:
        result = run(scenario, seed=seed, scale=scale, keeps_trace=number is not None)
        digest.update(result.digest.encode())
        if number:
            say("\n".join([*result.lines, ""]))
        say(f"{_report(result)}\n")
        for finding in result.findings:
            say(f"  BROKEN {finding.promise}: {finding.what}\n")
        missed = [] if number else _controls(scenario, seed)
        for control in missed:
            say(f"  NOT FOUND: {control}\n")
        is_broken = is_broken or bool(result.findings) or bool(missed)
    say(f"digest: {digest.hexdigest()}\n")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
