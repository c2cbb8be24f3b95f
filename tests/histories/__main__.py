"""`make histories`: 20,000 calls of clients in two processes, over a network that fails.

All requests go through a faulty endpoint to the embedded AWS's DynamoDB, or with `--memory` to a
table in memory. Tells after each round how far it has come; ends with 1 if a history is not
linearizable, and with 2 if there was no time for so many calls.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fairlock.testing.fake_table import MemoryTable
from testbed.localaws import LocalAws
from tests.histories.calls import Answer
from tests.histories.checker import Violation
from tests.histories.faulty_endpoint import (
    Backend,
    Faults,
    faulty_endpoint,
    memory_backend,
    passing_to,
)
from tests.histories.runs import LARGE, check, two_processes
from tests.support import create_lock_table


def main() -> int:
    """Runs rounds until there are enough calls, and checks each history."""
    parser = argparse.ArgumentParser(description="histories of lock clients, checked")
    parser.add_argument("--calls", type=int, default=20_000, help="how many at least")
    parser.add_argument("--seconds", type=float, default=1_200, help="no round begins after that")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the clients")
    parser.add_argument("--faults", type=float, default=0.05, help="share of the requests")
    parser.add_argument("--memory", action="store_true", help="a table in memory: cheaper")
    arguments = parser.parse_args()
    began = time.monotonic()
    faults = Faults(share=arguments.faults, seed=arguments.seed, flaps=True)
    answers: Counter[Answer] = Counter()
    violations: list[Violation] = []
    histories, numbers = 0, itertools.count(arguments.seed * 1_000)
    with (
        _backend(is_in_memory=arguments.memory) as backend,
        faulty_endpoint(backend, faults) as url,
        two_processes(url) as run_round,
    ):
        while (
            answers.total() < arguments.calls
            and not violations
            and time.monotonic() < began + arguments.seconds
        ):
            for name, history in run_round(next(numbers)).items():
                answers.update(call.answer for call in history)
                violation = check(history, LARGE[name])
                violations += [] if violation is None else [violation]
                histories += 1
            seconds = time.monotonic() - began
            _tell(f"{answers.total():,} of {arguments.calls:,} calls, {seconds:.0f} s")
    _tell(
        f"{answers.total():,} calls in {histories} histories: "
        + ", ".join(f"{answers[answer]:,} {answer.value}" for answer in Answer)
    )
    _tell(
        f"{faults.requests:,} requests, {faults.met.total():,} faults: "
        + ", ".join(f"{number:,} {fault.name.lower()}" for fault, number in faults.met.items())
    )
    for violation in violations:
        _tell(f"not linearizable: {violation.why}: {violation.call}")
    _tell(f"{faults.landed:,} writes landed after their callers had given them up")
    _tell(f"{len(violations)} violations")
    if violations:
        return 1
    return 0 if answers.total() >= arguments.calls else 2


@contextmanager
def _backend(*, is_in_memory: bool) -> Iterator[Backend]:
    if is_in_memory:
        yield memory_backend(MemoryTable())
        return
    with LocalAws() as aws:
        os.environ.update(aws.environment)  # For the processes, too, that are started from here.
        create_lock_table(aws.client("dynamodb"))
        yield passing_to(aws.endpoint_url)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
