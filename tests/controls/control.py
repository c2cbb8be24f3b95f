"""A control: the product with one of its protections switched off, as a change of its source.

A change of the source, and not a patch of a name: a module that has imported the name keeps the
old one, and a condition inside a function has no name. The change is made while the module is
imported, so the checkout stays as it is.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from itertools import zip_longest
from pathlib import Path
from random import Random
from types import CodeType
from typing import Final

import coverage
import pytest

CHECKOUT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Control:
    """One protection, switched off.

    Attributes:
        name: of the control.
        file: of the product, below `fairlock/`.
        old: what stands there, exactly once.
        new: what stands there instead.
        breaks: the promise that no longer holds. At least one test must fail.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return CHECKOUT / "fairlock" / self.file

    @property
    def module(self) -> str:
        """The module that is changed."""
        return f"fairlock.{self.file.removesuffix('.py').replace('/', '.')}"

    def source(self) -> str:
        """The changed source."""
        before = self.path.read_text()
        found = before.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: {self.file} has {found} places like {self.old!r}; correct `old` and "
                "`new` in tests/controls, and run `python -m tests.controls` with its name"
            )
        return before.replace(self.old, self.new)

    def lines(self) -> range:
        """The lines of the statement in which the change begins, as the file is."""
        before = self.path.read_text()
        at = before[: before.index(self.old)].count("\n") + 1
        at += len(self.old) - len(self.old.lstrip("\n"))
        inside = [
            node
            for node in ast.walk(ast.parse(before))
            if isinstance(node, ast.stmt) and node.lineno <= at <= (node.end_lineno or 0)
        ]
        innermost = max(inside, key=lambda node: node.lineno)
        body = getattr(innermost, "body", None)
        return range(innermost.lineno, body[0].lineno if body else (innermost.end_lineno or at) + 1)

    def apply(self) -> None:
        """Switches the protection off in this process, for good; before the product is imported."""
        if self.module in sys.modules:
            raise RuntimeError(f"{self.module} is imported already")
        as_it_is = SourceFileLoader.get_code

        def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
            if fullname != self.module:
                return as_it_is(loader, fullname)
            # Not from the bytecode cache, which has the file as it is; nor into it.
            code: CodeType = compile(self.source(), str(self.path), "exec")
            return code

        SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]  # replaced


# All controls by their names, and which files of tests catch each: the matrix, kept.
#
# The register is data: `protocol.toml`, `store.toml` and `client.toml`, by the files of the
# product.

_HERE: Final = Path(__file__).parent
KEPT: Final = _HERE / "caught.json"
"""By control, the files of tests that fail; written by `python -m tests.controls --keep`."""


def read_register() -> Iterator[Control]:
    """Every control, in the order of the files."""
    for path in sorted(_HERE.glob("*.toml")):
        for file, controls in tomllib.loads(path.read_text()).items():
            for fields in controls:
                yield Control(file=file, **fields)


REGISTER: Final[dict[str, Control]] = {control.name: control for control in read_register()}


def caught() -> dict[str, list[str]]:
    """The kept summary."""
    found: dict[str, list[str]] = json.loads(KEPT.read_text())
    return found


# Which tests execute the lines that a control changes: recorded once, by running them all.
#
# The record is kept outside the checkout, one for each folder of tests. It may be older than the
# tests: then a control runs too few of them, and says so by failing none.

HOME: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
FOLDER: Final = HOME / "fairlock-tests" / "controls"
_PRODUCT: Final = CHECKOUT / "fairlock"


class Recorder:
    """A plugin of pytest that names the running test to coverage, and notes how long it takes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        yield
        self._measured.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = report.duration


def record(folder: str) -> None:
    """Runs the tests of a folder, and records what each executes. Must come before any import."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    name = folder.strip("/").replace("/", "-")
    lines = FOLDER / f"{name}.lines"
    lines.unlink(missing_ok=True)
    measured = coverage.Coverage(
        data_file=str(lines),
        config_file=False,
        source=[str(_PRODUCT)],
        concurrency=["greenlet", "thread"],
    )
    recorder = Recorder(measured)
    measured.start()
    pytest.main(["-q", "-p", "no:xdist", "-p", "no:cov", "--timeout", "120", folder], [recorder])
    measured.stop()
    measured.save()
    (FOLDER / f"{name}.json").write_text(json.dumps(recorder.seconds))


class Recorded:
    """What was recorded of all folders."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for path in FOLDER.glob("*.lines"):
            self.seconds |= json.loads(path.with_suffix(".json").read_text())
            data = coverage.CoverageData(str(path))
            data.read()
            for file in data.measured_files():
                below = file.rpartition(f"/{_PRODUCT.name}/")[2]  # Of whichever checkout.
                for line, tests in data.contexts_by_lineno(file).items():
                    self._tests[below][line] |= {test for test in tests if test}

    def tests_of(
        self, control: Control, *, longest_seconds: float, seconds: float = math.inf
    ) -> list[str]:
        """The tests that execute what the control changes, without those that take long.

        Args:
            control: the change.
            longest_seconds: how long one test may take.
            seconds: how long all may take. Some of each file are taken, until that is reached.
        """
        found = self._of_lines(control.file, control.lines())
        if not found:  # A constant, a class, a decorator: executed once, by an import.
            found = {test for name in _names(control) for test in self._of_name(name)}
        short = (t for t in sorted(found) if self.seconds.get(t, math.inf) < longest_seconds)
        of_files: dict[str, list[str]] = defaultdict(list)
        for test in short:
            of_files[test.partition("::")[0]].append(test)
        chosen, random = list[str](), Random(control.name)  # noqa: S311 - a choice of tests
        for tests in of_files.values():
            random.shuffle(tests)
        in_turn = (t for row in zip_longest(*of_files.values()) for t in row if t is not None)
        for test in in_turn:
            if self.seconds[test] <= seconds:
                seconds -= self.seconds[test]
                chosen.append(test)
        return sorted(chosen)

    def of_files(self, files: Sequence[str], *, longest_seconds: float) -> list[str]:
        """The tests in these files, without those that take long."""
        return [
            test
            for test, seconds in self.seconds.items()
            if test.partition("::")[0] in files and seconds < longest_seconds
        ]

    def _of_lines(self, file: str, lines: Iterable[int]) -> set[str]:
        return {test for line in lines for test in self._tests[file][line]}

    def _of_name(self, name: str, *, further: bool = True) -> Iterator[str]:
        """The tests that execute a line with a name; of a constant that uses it, that one's."""
        for path in _PRODUCT.rglob("*.py"):
            file = path.relative_to(_PRODUCT).as_posix()
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                if not re.search(rf"\b{name}\b", line):
                    continue
                yield from self._of_lines(file, [number])
                constant = re.match(r"(_?[A-Z][A-Z_]+)\b.*=", line)
                if further and constant and constant[1] != name:
                    yield from self._of_name(constant[1], further=False)


def _names(control: Control) -> list[str]:
    """What the changed statement of a module defines."""
    first = control.lines()[0]
    for node in ast.walk(ast.parse(control.path.read_text())):
        if isinstance(node, ast.stmt) and node.lineno == first:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            return [target.id for target in targets if isinstance(target, ast.Name)]
    return []
