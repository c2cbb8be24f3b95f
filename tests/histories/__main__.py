"""`make histories`: 20,000 calls of clients in two processes, over a network that fails.

All requests go through a faulty endpoint to the embedded AWS's DynamoDB. Prints what was found, and
ends with 1 if a history is not linearizable.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter

from localaws import LocalAws
from tests.histories.calls import Answer
from tests.histories.checker import Violation
from tests.histories.faulty_endpoint import Faults, faulty_endpoint, passing_to
from tests.histories.plans import LARGE
from tests.histories.runs import check
from tests.histories.two_processes import two_processes
from tests.support import create_lock_table


def main() -> int:
    """Runs rounds until there are enough calls, and checks each history."""
    parser = argparse.ArgumentParser(description="histories of lock clients, checked")
    parser.add_argument("--calls", type=int, default=20_000, help="how many at least")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the clients")
    parser.add_argument("--faults", type=float, default=0.05, help="share of the requests")
    arguments = parser.parse_args()
    began, faults = time.monotonic(), Faults(share=arguments.faults, seed=arguments.seed)
    answers: Counter[Answer] = Counter()
    violations: list[Violation] = []
    histories, numbers = 0, itertools.count(arguments.seed * 1_000)
    with LocalAws() as aws:
        create_lock_table(aws.client("dynamodb"))
        with (
            faulty_endpoint(passing_to(aws.endpoint_url), faults) as url,
            two_processes(url) as run_round,
        ):
            while answers.total() < arguments.calls and not violations:
                for name, history in run_round(next(numbers)).items():
                    answers.update(call.answer for call in history)
                    violation = check(history, LARGE[name])
                    violations += [] if violation is None else [violation]
                    histories += 1
    seconds = time.monotonic() - began
    lines = [
        f"{answers.total():,} calls in {histories} histories, {seconds:.0f} s: "
        + ", ".join(f"{answers[answer]:,} {answer.value}" for answer in Answer),
        f"{faults.requests:,} requests, {faults.met.total():,} faults: "
        + ", ".join(f"{number:,} {fault.name.lower()}" for fault, number in faults.met.items()),
        *(f"not linearizable: {violation.why}: {violation.call}" for violation in violations),
        f"{len(violations)} violations",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
