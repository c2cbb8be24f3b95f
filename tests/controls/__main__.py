"""Runs tests under controls: `python -m tests.controls [NAME …] [--tests PATH …]`.

Each control is applied in a process of its own, which runs the tests that execute what it changes;
of a file no more than up to its first failure. Prints which files fail. The whole matrix is written
outside the checkout; `--keep` writes its summary into the register.

    python -m tests.controls --record tests/unit/store tests/unit/client …    once, to select tests
    python -m tests.controls "the queue is overtaken"
    python -m tests.controls --whole --tests tests/unit/aio                   all failing tests
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controls.control import (
    CHECKOUT,
    FOLDER,
    KEPT,
    REGISTER,
    Control,
    Recorded,
    caught,
    record,
)

MATRIX: Final = FOLDER / "matrix.json"
_LONGEST_RUN_SECONDS: Final = 90
_LONGEST_RECORD_SECONDS: Final = 1200
_LONGEST_TEST_SECONDS: Final = 4.0
_TIMEOUT_SECONDS: Final = 30
_IMPORTED_ONCE: Final = ("boto3", "moto.dynamodb.models", "aiobotocore.session", "greenlet")


class Judge:
    """A plugin of pytest: runs the selected tests, and notes which fail.

    Args:
        selected: the tests to run.
        path: where to note each failure at once: the run may be ended at any time.
        whole: whether to go on in a file that has failed.
    """

    def __init__(self, selected: set[str], path: Path, *, whole: bool) -> None:
        self._selected = selected
        self._path = path
        self._whole = whole
        self._failed = set[str]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._selected]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test that never ends fails, too."""
        self._path.with_suffix(".now").write_text(nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if not self._whole and item.nodeid.partition("::")[0] in self._failed:
            pytest.skip("this file has failed")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._note(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._note(report.nodeid)

    def _note(self, nodeid: str) -> None:
        self._failed.add(nodeid.partition("::")[0])
        with self._path.open("a") as file:
            file.write(f"{nodeid}\n")


def in_a_process(work: Callable[[], object], *, log: Path, seconds: float) -> bool:
    """Runs something in a fork of this process; returns whether it came to its end in time."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        try:
            work()
        except BaseException:  # noqa: BLE001 - it is in the log, and this process ends
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def run(control: Control, tests: list[str], *, whole: bool) -> dict[str, Any]:
    """Runs tests under a control."""
    name = control.name.replace(" ", "-").replace("/", "-")
    failures = FOLDER / "runs" / f"{name}.failures"
    failures.parent.mkdir(parents=True, exist_ok=True)
    failures.write_text("")
    begun = failures.with_suffix(".now")
    begun.unlink(missing_ok=True)
    judge = Judge(set(tests), failures, whole=whole)
    files = sorted({test.partition("::")[0] for test in tests})
    options = ["-q", "--tb=no", "-p", "no:xdist", "-p", "no:cov", "-p", "no:cacheprovider"]

    def under_the_control() -> None:
        _apply_in_programs(control)
        control.apply()
        pytest.main([*options, "--timeout", str(_TIMEOUT_SECONDS), *files], [judge])

    log, began = failures.with_suffix(".log"), time.monotonic()
    is_whole = in_a_process(under_the_control, log=log, seconds=_LONGEST_RUN_SECONDS)
    failed = failures.read_text().splitlines()
    if tests and not failed and not begun.exists():
        raise RuntimeError(f"{control.name}: no test ran; see {log}")
    # The last test hangs only if it has outlasted its time-out: else a busy machine ended the run.
    if not is_whole and time.time() - begun.stat().st_mtime > _TIMEOUT_SECONDS:
        failed.append(begun.read_text())
    return {
        "breaks": control.breaks,
        "ran": len(tests),
        "ended": is_whole,
        "seconds": round(time.monotonic() - began, 1),
        "failed": sorted(set(failed)),
    }


def _apply_in_programs(control: Control) -> None:
    """Switches the protection off in programs that tests start, by what Python imports first."""
    place = FOLDER / "site"
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({str(CHECKOUT)!r})\n"
        "from tests.controls.control import REGISTER\n"
        f"REGISTER[{control.name!r}].apply()\n"
    )
    paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def files_of(found: dict[str, Any]) -> list[str]:
    """The files in which a test has failed."""
    return sorted({test.partition("::")[0] for test in found["failed"]})


def main() -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.controls", description=__doc__)
    parser.add_argument("names", nargs="*", help="of controls; all, if there are none")
    parser.add_argument("--tests", nargs="+", default=["tests/"], help="only tests below these")
    parser.add_argument("--record", nargs="+", default=[], help="folders of tests to record")
    parser.add_argument("--whole", action="store_true", help="go on in a file that has failed")
    parser.add_argument("--keep", action="store_true", help="write the summary into the register")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of tests for each control")
    parser.add_argument("--again", action="store_true", help="controls that the matrix has, too")
    asked = parser.parse_args()
    for folder in asked.record:
        log = FOLDER / "record.log"
        FOLDER.mkdir(parents=True, exist_ok=True)
        in_a_process(partial(record, folder), log=log, seconds=_LONGEST_RECORD_SECONDS)
    if not asked.record:
        for line in _run_all(asked):
            print(line, flush=True)  # noqa: T201 - a program prints
    if asked.keep:
        _keep()
    return 0


def _run_all(asked: argparse.Namespace) -> Iterator[str]:
    sys.dont_write_bytecode = False  # Else every process would compile all tests.
    for module in _IMPORTED_ONCE:
        importlib.import_module(module)
    recorded, kept = Recorded(), caught()
    matrix = json.loads(MATRIX.read_text()) if MATRIX.exists() else {}
    for name, control in REGISTER.items():
        is_named = name in asked.names
        if (asked.names and not is_named) or (name in matrix and not (is_named or asked.again)):
            continue
        tests = recorded.tests_of(
            control, longest_seconds=_LONGEST_TEST_SECONDS, seconds=asked.seconds
        )
        # What a program executes that a test starts is not recorded: the kept files are run, too.
        again = recorded.of_files(kept.get(name, []), longest_seconds=_LONGEST_TEST_SECONDS)
        tests = sorted({*tests, *again})
        tests = [test for test in tests if test.startswith(tuple(asked.tests))]
        # A file may have gone since it was recorded.
        tests = [test for test in tests if (CHECKOUT / test.partition("::")[0]).exists()]
        found = run(control, tests, whole=asked.whole)
        if asked.tests == ["tests/"]:
            matrix[name] = found
            MATRIX.write_text(json.dumps(matrix, indent=1))
        failing = ", ".join(files_of(found)) or "NOTHING"
        yield f"{name}: {found['ran']} tests, {found['seconds']} s: {failing}"


def _keep() -> None:
    """Controls that the matrix does not have keep their files."""
    matrix = json.loads(MATRIX.read_text())
    found = caught() | {name: files_of(matrix[name]) for name in matrix}
    kept = {name: found[name] for name in REGISTER if name in found}
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
