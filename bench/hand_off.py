"""How quickly a lock changes hands, and what it costs: the queue beside polling, in one run.

    python -m bench.hand_off

Needs no account: everything runs in an embedded AWS on this machine, about five minutes. What it
shows is the design's overhead beside an emulator's latencies, not the latencies of AWS.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.crowd import pass_through, requests_per_turn, waits
from bench.herds import herds
from bench.workflows import POLL, QUEUE, deployed
from tests.e2e.deployment import Deployment

_SIZES = (10, 50, 200)
_WAITS_SECONDS = (0, 10, 60)
_COUNTED = 10
_WARM_UP = 8
_CROWDS = {"51 wait for a lock": (51, 1), "6 wait for each of 10 locks": (6, 10)}
"""50 hand-offs each. The embedded AWS runs about 60 workflows at once on a small machine."""


def main() -> None:
    """Measures, prints tables and writes out/hand_off.json."""
    parser = argparse.ArgumentParser(description="hand-offs: the queue beside polling")
    parser.parse_args()
    console = Console()
    with console.status("deploying") as status, deployed() as deployment:
        results = _measured(deployment, tell=status.update)
    _show(console, results)
    path = Path("out/hand_off.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")
    console.print(f"written to {path}")


def _measured(deployment: Deployment, *, tell: Any) -> dict[str, Any]:  # noqa: ANN401 - rich's update
    both = (QUEUE, POLL)
    results: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} processors"}
    for machine in both:
        tell(f"{machine}: warming up")
        pass_through(deployment, machine, number=_WARM_UP)
    tell("herds through the store")
    client = deployment.aws.client("dynamodb", max_pool_connections=64)
    results["herds"] = herds(client, _SIZES)
    results["hand-offs"] = {crowd: {} for crowd in _CROWDS}
    for crowd, (number, locks) in _CROWDS.items():
        for machine in both:
            tell(f"{machine}: {crowd}")
            passage = pass_through(deployment, machine, number=number, locks=locks)
            results["hand-offs"][crowd][machine] = passage.figures()
    tell(f"one waits {max(_WAITS_SECONDS)} s")
    with ThreadPoolExecutor() as pool:
        begun = {
            (machine, seconds): pool.submit(waits, deployment, machine, seconds=seconds)
            for machine in both
            for seconds in _WAITS_SECONDS
        }
        for (machine, seconds), future in begun.items():
            results.setdefault(f"{machine} wait", {})[seconds] = future.result()
    for machine in both:
        tell(f"{machine}: counting requests")
        results[f"{machine} requests"] = requests_per_turn(deployment, machine, number=_COUNTED)
    return results


def _show(console: Console, results: dict[str, Any]) -> None:
    console.print(f"Embedded AWS on {results['machine']}")
    table = Table("", "", "hand-offs", "median", "p95", "max", "transitions (median, max)")
    for crowd, machines in results["hand-offs"].items():
        for machine, f in machines.items():
            spans = [f"{f[name]:,.0f} ms" for name in ("median_ms", "p95_ms", "max_ms")]
            transitions = f"{f['median_transitions']:g}, {f['max_transitions']}"
            table.add_row(crowd, machine, str(f["hand_offs"]), *spans, transitions)
    console.print("Hand-off: end of a task to the first instruction of the next", table)

    table = Table("", *(f"waits {seconds} s" for seconds in _WAITS_SECONDS))
    for machine in (QUEUE, POLL):
        cells = results[f"{machine} wait"].values()
        table.add_row(
            machine, *(f"{c['transitions']} ({c['function_calls']} calls)" for c in cells)
        )
    console.print("Transitions of an execution, its one task included (calls of functions)", table)

    table = Table("", "requests for each workflow")
    for machine in (QUEUE, POLL):
        counts = results[f"{machine} requests"]
        table.add_row(machine, ", ".join(f"{counts[name]:g} {name}" for name in counts))
    console.print(f"Requests, {_COUNTED} workflows in line", table)

    table = Table("waiters", "requests to join", "requests per hand-off", "once and in order")
    for size, herd in results["herds"].items():
        join, hand_off = herd["requests_to_join"], herd["requests_per_hand_off"]
        order = "yes" if herd["granted_once_in_order"] else "NO"
        table.add_row(str(size), f"{join:g}", f"{hand_off:g}", order)
    console.print("Herds through the store: DynamoDB requests", table)


if __name__ == "__main__":
    main()
