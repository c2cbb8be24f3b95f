"""Runs the same tests on both engines, and prints how they ended side by side.

Ends with status 1 if a difference is left that known_differences.py does not name.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.second_engine.comparison import Outcomes, Row, compare, outcomes_of, table
from testbed.second_engine.known_differences import OF_DYNAMODB_LOCAL, OF_LOCALSTACK
from testbed.second_engine.places import CHECKOUT

_LONGEST_RUN_SECONDS: Final = 1200
_LONGEST_TEST_SECONDS: Final = 180
_AT_ONCE: Final = 2

GUARDS: Final = ("tests/e2e/guard", "tests/e2e/optimistic")
GUARD_CASES: Final = ("testbed/second_engine/cases",)
LOCK_TABLE: Final = ("tests/unit/store",)


@dataclass(frozen=True)
class Run:
    """One run of pytest over some tests, on one engine."""

    tests: Sequence[str]
    options: Sequence[str] = ()

    def outcomes(self) -> Outcomes:
        """How each case ended. Raises RuntimeError if pytest did not come to run them."""
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "junit.xml"
            command = [sys.executable, "-m", "pytest", *self.options, *self.tests]
            command += ["--quiet", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}"]
            command += [f"--timeout={_LONGEST_TEST_SECONDS}", "-o", "timeout_func_only=true"]
            command += ["-o", "junit_family=xunit1"]  # knows the figures that tests record
            printed, status = _ended(command)
            if not report.exists():
                raise RuntimeError(f"{command} did not run:\n{printed}")
            if status:
                sys.stderr.write(printed)
            return outcomes_of(report)


_running: list[subprocess.Popen[str]] = []


def _ended(command: Sequence[str]) -> tuple[str, int]:
    """What a process printed, and its status, when it has ended."""
    with subprocess.Popen(
        command,
        cwd=CHECKOUT,
        # One play of each scenario, as in `make test`: more would be a test of the machine.
        env={**os.environ, "FAIRLOCK_TIMES": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        _running.append(process)
        try:
            printed, _ = process.communicate(timeout=_LONGEST_RUN_SECONDS)
        finally:
            process.kill()  # the engines end with it
    return printed, process.returncode


_INTERPRETER: Final = ("-p", "testbed.second_engine.on_second_interpreter")
_DYNAMODB: Final = ("-p", "testbed.second_engine.on_dynamodb", "--dynamodb")
RUNS: Final = (
    Run(GUARDS),
    Run(GUARDS, _INTERPRETER),
    Run(GUARD_CASES),
    Run(GUARD_CASES, _INTERPRETER),
    Run(LOCK_TABLE, (*_DYNAMODB, "ministack")),
    Run(LOCK_TABLE, (*_DYNAMODB, "dynamodb-local")),
)


def main() -> int:
    """Print both tables; answers the exit status."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    guards, guards_2, cases, cases_2, locks, locks_2 = _all_outcomes()
    machines = compare({**guards, **cases}, {**guards_2, **cases_2}, OF_LOCALSTACK)
    requests = compare(locks, locks_2, OF_DYNAMODB_LOCAL)
    _print("The guard's machines", machines, ("ministack", "LocalStack"))
    _print("The lock's requests", requests, ("ministack", "DynamoDB Local"))
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    return int(not all(row.is_explained for row in [*machines, *requests]))


def _all_outcomes() -> list[Outcomes]:
    """How the cases of all runs ended. Leaves no process behind, however it ends."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            return list(pool.map(Run.outcomes, RUNS))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in _running:
                process.kill()
            raise


def _print(title: str, rows: Sequence[Row], engines: tuple[str, str]) -> None:
    sys.stdout.write(table(title, rows, engines) + "\n\n")


if __name__ == "__main__":
    sys.exit(main())
