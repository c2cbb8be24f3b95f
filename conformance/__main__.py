"""Runs AWS's requirements on both engines, and prints how they ended side by side.

Ends with status 1 if an engine differs in something that conformance/known_differences.py does not
name, if a named difference is gone, or if a planted defect is not found.
"""

from __future__ import annotations

import io
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

_SITE: Final = Path(".conformance/site").resolve()
_PAGE: Final = Path("docs/durable-conformance.md")
_AT_ONCE: Final = 8

sys.path.insert(0, str(_SITE))  # AWS's package is beside our environment, not in it

from conformance.controls import CONTROLS, Control  # noqa: E402 - needs the path above
from conformance.embedded_aws import embedded_aws  # noqa: E402 - same
from conformance.engine import Engine  # noqa: E402 - same
from conformance.handlers.case import HANDLERS  # noqa: E402 - same
from conformance.known_differences import (  # noqa: E402 - same
    NOT_RUN,
    OF_EMBEDDED_AWS,
    OF_LOCAL_RUNNER,
    Difference,
)
from conformance.local_runner import local_runner  # noqa: E402 - same
from conformance.outcome import Outcome, Verdict  # noqa: E402 - same
from conformance.report import Cell, Row, page, replaced, table  # noqa: E402 - same
from conformance.trial import requirements, title, try_out  # noqa: E402 - same

ENGINES: Final[Mapping[str, Mapping[str, Difference]]] = {
    "local runner": OF_LOCAL_RUNNER,
    "embedded AWS": OF_EMBEDDED_AWS,
}


def main(wanted: Sequence[str]) -> int:
    """Run the wanted requirements, or all; answers the exit status."""
    began = time.monotonic()
    logging.getLogger().setLevel(logging.CRITICAL)  # the local runner logs each failure of a step
    paths = {name: path for name, path in requirements().items() if not wanted or name in wanted}
    with tempfile.TemporaryDirectory() as directory, redirect_stdout(io.StringIO()):
        trials = _Trials(paths, Path(directory))
        outcomes = {"local runner": trials.on_local_runner(), "embedded AWS": trials.on_embedded()}
        missed = [] if wanted else [each.defect for each in CONTROLS if not trials.finds(each)]
    rows = [_row(name, path, outcomes) for name, path in paths.items()]
    sys.stdout.write(f"{table(rows, tuple(ENGINES))}\n\n{page(rows, tuple(ENGINES))}\n")
    for defect in missed:
        sys.stdout.write(f"NOT FOUND, though planted: {defect}\n")
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    open_rows = [row.name for row in rows if not all(map(_explained, row.cells.values()))]
    if wanted:
        return int(bool(open_rows))
    _PAGE.write_text(replaced(_PAGE.read_text(), page(rows, tuple(ENGINES))))
    sys.stdout.write(f"{len(CONTROLS) - len(missed)} of {len(CONTROLS)} planted defects found\n")
    return int(bool(open_rows or missed))


def _explained(cell: Cell) -> bool:
    return cell.is_explained


class _Trials:
    """All runs of requirements, each with a directory of its own."""

    def __init__(self, paths: Mapping[str, Path], directory: Path) -> None:
        self._paths, self._directory = paths, directory
        self._names = [name for name in paths if name in HANDLERS]

    def on_local_runner(self) -> dict[str, Outcome]:
        def run(name: str) -> Outcome:
            with local_runner() as engine:
                return self._judge(engine, name)

        return self._all(run)

    def on_embedded(self) -> dict[str, Outcome]:
        with embedded_aws() as engine:
            return self._all(lambda name: self._judge(engine, name))

    def finds(self, control: Control) -> bool:
        return control.finds(self._judge)

    def _all(self, run: Callable[[str], Outcome]) -> dict[str, Outcome]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(self._names, pool.map(run, self._names), strict=True))

    def _judge(self, engine: Engine, name: str) -> Outcome:
        notes = Path(tempfile.mkdtemp(dir=self._directory))
        try:
            return try_out(engine, name, self._paths[name], notes)
        except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say it
            return Outcome(Verdict.FAILED, repr(error))


def _row(name: str, path: Path, outcomes: Mapping[str, Mapping[str, Outcome]]) -> Row:
    suite = path.parent.name
    if name not in HANDLERS:
        return Row(name, suite, title(path), {}, NOT_RUN[suite])
    cells = {
        engine: Cell(outcomes[engine][name], known.get(name)) for engine, known in ENGINES.items()
    }
    return Row(name, suite, title(path), cells)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
