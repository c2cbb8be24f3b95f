"""Runs AWS's requirements on both engines, and prints how they ended side by side.

Ends with status 1 if an engine differs in something that known_differences.py does not name, if a
named difference is gone, if an engine answers a question of questions.py otherwise than before, or
if a planted defect is not found.
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

from testbed.conformance.answers import starter  # noqa: E402 - needs the path above
from testbed.conformance.controls import CONTROLS, Control  # noqa: E402 - same
from testbed.conformance.embedded_aws import embedded_aws  # noqa: E402 - same
from testbed.conformance.engine import Engine  # noqa: E402 - same
from testbed.conformance.handlers.case import HANDLERS  # noqa: E402 - same
from testbed.conformance.known_differences import (  # noqa: E402 - same
    NOT_RUN,
    OF_EMBEDDED_AWS,
    OF_LOCAL_RUNNER,
    Difference,
)
from testbed.conformance.local_runner import local_runner  # noqa: E402 - same
from testbed.conformance.outcome import Outcome, Verdict  # noqa: E402 - same
from testbed.conformance.questions import QUESTIONS, Question  # noqa: E402 - same
from testbed.conformance.report import (  # noqa: E402 - same
    Answer,
    Cell,
    Row,
    answers,
    page,
    replaced,
    table,
)
from testbed.conformance.trial import requirements, title, try_out  # noqa: E402 - same

ENGINES: Final[Mapping[str, Mapping[str, Difference]]] = {
    "local runner": OF_LOCAL_RUNNER,
    "embedded AWS": OF_EMBEDDED_AWS,
}


def main(wanted: Sequence[str]) -> int:
    """Run the wanted requirements, or all and the rest; answers the exit status."""
    began = time.monotonic()
    logging.getLogger().setLevel(logging.CRITICAL)  # the local runner logs each failure of a step
    paths = {name: path for name, path in requirements().items() if not wanted or name in wanted}
    answered: list[tuple[Answer, ...]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as directory, redirect_stdout(io.StringIO()):
        trials = _Trials(paths, Path(directory))
        with embedded_aws() as embedded:
            outcomes = dict(zip(ENGINES, (trials.on_local(), trials.on(embedded)), strict=True))
            if not wanted:
                answered = [_answers(each, embedded, Path(directory)) for each in QUESTIONS]
        if not wanted:
            missed = [each.defect for each in CONTROLS if not trials.finds(each)]
    rows = [_row(name, path, outcomes) for name, path in paths.items()]
    sys.stdout.write(f"{table(rows, tuple(ENGINES))}\n\n{_written(rows, answered)}\n")
    for defect in missed:
        sys.stdout.write(f"NOT FOUND, though planted: {defect}\n")
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    known = [cell.is_explained for row in rows for cell in row.cells.values()]
    known += [each.found == each.known for found in answered for each in found]
    return int(not all(known) or bool(missed))


def _written(rows: Sequence[Row], answered: Sequence[Sequence[Answer]]) -> str:
    """What a run tells; that of a whole run is written into the document."""
    part = page(rows, tuple(ENGINES))
    if answered:
        asked = zip(QUESTIONS, answered, strict=True)
        told = [(each.text, found, each.consequence) for each, found in asked]
        part += f"\n{answers(told, tuple(ENGINES))}"
        _PAGE.write_text(replaced(_PAGE.read_text(), part))
    return part


def _answers(question: Question, embedded: Engine, directory: Path) -> tuple[Answer, ...]:
    with local_runner() as local:
        asked = [
            (local, question.local_runner),
            (embedded, question.embedded_aws),
        ]
        return tuple(Answer(_asked(question, engine, directory), known) for engine, known in asked)


def _asked(question: Question, engine: Engine, directory: Path) -> str:
    try:
        return question.ask(starter(engine, Path(tempfile.mkdtemp(dir=directory))))
    except Exception as error:  # noqa: BLE001 - whatever it is, the row has to say it
        return repr(error)


class _Trials:
    """All runs of requirements, each with a directory of its own."""

    def __init__(self, paths: Mapping[str, Path], directory: Path) -> None:
        self._paths, self._directory = paths, directory
        self._names = [name for name in paths if name in HANDLERS]

    def on_local(self) -> dict[str, Outcome]:
        def run(name: str) -> Outcome:
            with local_runner() as engine:
                return self._judge(engine, name)

        return self._all(run)

    def on(self, engine: Engine) -> dict[str, Outcome]:
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
