"""How quickly a lock changes hands between workflows, and what it costs: queue beside polling."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.bed import Bed, Figures
from bench.crowd import pass_through, waits
from bench.herds import herds
from bench.workflows import POLL, QUEUE, deployed
from tests.e2e.deployment import Deployment

_SIZES: Final = (10, 50, 200)
_WAITS_SECONDS: Final = (0, 10, 30)
_WARM_UP: Final = 4
_CROWDS: Final = {"21 wait for a lock": (21, 1), "6 wait for each of 3 locks": (6, 3)}
"""The embedded AWS runs about 60 workflows at once on a small machine."""
_QUICK_CROWDS: Final = {"3 wait for a lock": (3, 1)}
_COSTS: Final = Path(__file__).parents[1] / "docs" / "site" / "costs.json"
_USD_PER_MILLION: Final[dict[str, float]] = json.loads(_COSTS.read_text())["usd_per_million"]
"""List prices of us-east-1."""


def measure(bed: Bed) -> Figures:
    """In an embedded AWS of its own, with the service and both state machines deployed."""
    with deployed() as deployment:
        return _measured(deployment, quick=bed.quick)


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    hand_offs = [
        f"| {crowd} | {machine} | {f['median_ms']:,.0f} | {f['max_ms']:,.0f} "
        f"| {f['median_transitions']:g}, {f['max_transitions']} |"
        for crowd, machines in figures["hand-offs"].items()
        for machine, f in machines.items()
    ]
    crowds = ", ".join(
        f"{f['requests_to_join']:g} and {f['requests_per_hand_off']:g} with {size} waiters"
        + ("" if f["granted_once_in_order"] else " (NOT granted once and in order)")
        for size, f in figures["herds"].items()
    )
    return [
        "## Workflows: the queue beside polling",
        "",
        "The same task, guarded by the queue and by a guard that polls; costs are **arithmetic**.",
        "",
        "| | guard | hand-off, median ms | max ms | transitions, median and max |",
        "|---|---|---|---|---|",
        *hand_offs,
        "",
        "![Cost over waiting time](images/performance-cost.svg)",
        "",
        f"Requests to join, and to hand over: {crowds}.",
    ]


def _measured(deployment: Deployment, *, quick: bool) -> dict[str, Any]:
    both, results = (QUEUE, POLL), Figures()
    for machine in both:
        pass_through(deployment, machine, number=2 if quick else _WARM_UP)
    client = deployment.aws.client("dynamodb", max_pool_connections=64)
    results["herds"] = herds(client, _SIZES[:1] if quick else _SIZES)
    results["hand-offs"] = {}
    for crowd, (number, locks) in (_QUICK_CROWDS if quick else _CROWDS).items():
        row = results["hand-offs"][crowd] = {}
        for machine in both:
            row[machine] = pass_through(deployment, machine, number=number, locks=locks).figures()
    _measure_waits(deployment, results, _WAITS_SECONDS[:1] if quick else _WAITS_SECONDS)
    return results


def _measure_waits(deployment: Deployment, results: Figures, seconds: tuple[int, ...]) -> None:
    """All at a time: an execution that waits does nothing meanwhile."""
    with ThreadPoolExecutor() as pool:
        begun = {
            (machine, each): pool.submit(waits, deployment, machine, seconds=each)
            for machine in (QUEUE, POLL)
            for each in seconds
        }
        for (machine, each), future in begun.items():
            found: dict[str, float] = dict(future.result())
            transitions, calls = found["transitions"], found["function_calls"]
            prices = _USD_PER_MILLION
            cost = transitions * prices["state_transitions"] + calls * prices["invocations"]
            found["usd"] = cost
            results.setdefault(f"{machine} wait", {})[str(each)] = found
