"""The handlers of a version of the service in simulated processes; an earlier one beside today's.

`earlier.zip` has the sources of an earlier version, and the states that its guards made. Its
modules are imported under other names, `earlier.fairlock` and `earlier.lambdas`, so each version
runs its own code. `python -m tests.simulation.versions FOLDER` packs the checkout in a folder;
without one it packs this checkout. Do that at each release, so that the next version is compared
with it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from greenlet import getcurrent

from tests.support.weakened import Patch, patched

Json = dict[str, Any]
ARCHIVE: Final = Path(__file__).with_name("earlier.zip")
_PREFIX: Final = "earlier"
_MACHINES: Final = "tests/simulation/machines.json"
_PARTS: Final = ("fairlock", *(f"fairlock/{name}" for name in ("aws", "protocol", "store", "wire")))
_IMPORT: Final = re.compile(r"^(\s*from )(?=(?:fairlock|lambdas)\b)", re.MULTILINE)
_SAME_DATE: Final = (2026, 1, 1, 0, 0, 0)
"""Of each file in the archive: the same sources make the same archive."""


@dataclass(frozen=True)
class Version:
    """A version of the functions.

    Attributes:
        load: imports one of its modules by its usual name.
    """

    load: Callable[[str], ModuleType]

    @cached_property
    def handlers(self) -> dict[str, Any]:
        """By their names; imports them."""
        names = ("acquire", "heartbeat", "release", "reap")
        return {name: self.load(f"lambdas.{name}").handler for name in names}


def _load_earlier(name: str) -> ModuleType:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    return importlib.import_module(f"{_PREFIX}.{name}")


TODAY: Final = Version(importlib.import_module)
EARLIER: Final = Version(_load_earlier)


class _OfProcess:
    """Stands for a global of a real process, which each process has for itself here."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the real one
        return getattr(self._real(), name)

    def __call__(self, *args: Any, **fields: Any) -> Any:  # noqa: ANN401 - as the real one
        return self._real()(*args, **fields)

    def __enter__(self) -> Any:  # noqa: ANN401 - as the real one
        return self._real().__enter__()

    def __exit__(self, *raised: object) -> Any:  # noqa: ANN401 - as the real one
        return self._real().__exit__(*raised)

    def _real(self) -> Any:  # noqa: ANN401 - the real one
        return getattr(getcurrent().process, self._name)


@contextmanager
def lambda_runtime(version: Version = TODAY) -> Iterator[None]:
    """The conditions under which the handlers of a version run here."""
    assert version.handlers, "they are imported before anything that they import is replaced"
    clock, aws_clock = _OfProcess("clock"), _OfProcess("aws_clock")
    load, names = version.load, version.load("fairlock.names")
    runtime, system = load("lambdas.runtime"), load("fairlock.clock").SystemClock
    # An earlier version has its metrics in a module of their own.
    counted = getattr(runtime, "metrics", None) or load("lambdas.telemetry").metrics
    variables = {names.TABLE_NAME_VARIABLE: "locks", names.REAP_QUEUE_VARIABLE: "reap"}
    patches: list[Patch] = [
        (runtime, "_CLOCK", clock),
        (runtime, "aws_clock", aws_clock),
        (load("lambdas.acquire"), "aws_clock", aws_clock),
        (runtime, "_client", lambda service: getcurrent().process.clients[service]),
        (load("lambdas.reap"), "_processor", _OfProcess("batch")),
        (counted, "add_metric", lambda **_metric: None),
        # Of messages to workflows, whose budget is made without a clock.
        (system, "wall_ms", lambda _: clock.wall_ms()),
        (system, "monotonic", lambda _: clock.monotonic()),
        (system, "wait", lambda _, seconds: clock.wait(seconds)),
    ]
    with patch.dict(os.environ, variables), patched(patches):
        yield


@cache
def earlier() -> Json:
    """What the earlier version's guards and stack made, as `machines.json` of today."""
    found: Json = json.loads(_sources()[_MACHINES])
    return found


@cache
def _sources() -> dict[str, str]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


class _Finder(MetaPathFinder, Loader):
    """Imports from the archive; what a module imports of its own version has the prefix, too."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != _PREFIX:
            return None
        found = self._file_of(name)
        if found is None and name != _PREFIX:
            return None
        is_package = name == _PREFIX or str(found).endswith("__init__.py")
        return ModuleSpec(name, self, origin=found, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        found = self._file_of(module.__name__)
        if found is not None:
            source = _IMPORT.sub(rf"\1{_PREFIX}.", _sources()[found])
            exec(compile(source, f"{ARCHIVE.name}/{found}", "exec"), module.__dict__)  # noqa: S102 - our own sources

    @staticmethod
    def _file_of(name: str) -> str | None:
        path = name.removeprefix(f"{_PREFIX}.").replace(".", "/")
        candidates = (f"{path}.py", f"{path}/__init__.py")
        return next((each for each in candidates if each in _sources()), None)


def pack(folder: Path, archive: Path) -> None:
    """Packs what the functions of a checkout run, and the machines that it has recorded."""
    files = [folder / _MACHINES]
    for part in (*_PARTS, "lambdas"):
        files += sorted((folder / part).glob("*.py"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(folder).as_posix(), _SAME_DATE)
            packed.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    pack(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve(), ARCHIVE)
