"""The versions of the service in simulated processes: today's, and an earlier one beside it.

A version has the handlers of the functions, and what its guards and its stack make. The CDK takes
seconds, so today's is recorded in `machines.json`, and `test_simulation.py` fails if they make
something else; `python -m tests.simulation.versions --record` records it again.

`earlier.zip` has an earlier version under other names, `earlier.fairlock` and `earlier.lambdas`, so
each version runs its own code. `python -m tests.simulation.versions FOLDER` packs the checkout in a
folder; without one it packs this checkout. Do that at each release, so that the next version is
compared with it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from greenlet import getcurrent

from tests.support.weakened import Patch, patched

Json = dict[str, Any]
RECORDED: Final = Path(__file__).with_name("machines.json")
ARCHIVE: Final = Path(__file__).with_name("earlier.zip")
_PARTS: Final = ("fairlock", *(f"fairlock/{name}" for name in ("aws", "protocol", "store", "wire")))
_IMPORT: Final = re.compile(r"^(\s*from )(?=(?:fairlock|lambdas)\b)", re.MULTILINE)
_SAME_DATE: Final = (2026, 1, 1, 0, 0, 0)
"""Of each file in the archive: the same sources make the same archive."""


_FUNCTION: Final = "arn:aws:lambda:us-east-1:123456789012:function:"
_WORK: Final = {
    "Type": "Task",
    "QueryLanguage": "JSONata",
    "Resource": "arn:aws:states:::lambda:invoke",
    "Arguments": {"FunctionName": f"{_FUNCTION}work", "Payload": "{% $states.input %}"},
    "Output": "{% $states.input %}",
}
LEASE_SECONDS: Final = 60
KEEP_ALIVE_SECONDS: Final = 20


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
    if str(ARCHIVE) not in sys.path:
        sys.path.append(str(ARCHIVE))
    return importlib.import_module(f"{ARCHIVE.stem}.{name}")


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
def recorded() -> Json:
    found: Json = json.loads(RECORDED.read_text())
    return found


def machine(name: str) -> Json:
    found: Json = recorded()["machines"][name]
    return found


def made_today() -> Json:
    """What the guard and the service's stack make now; takes the CDK."""
    from fairlock.cdk.guard.standalone import FUNCTIONS, WAYS_TO_WAIT, guarded_machine  # noqa: PLC0415 - the CDK takes seconds
    from fairlock.cdk.service import functions, reaper, reaper_rules  # noqa: PLC0415

    arns = {name: _FUNCTION + name.removesuffix("FunctionArn").lower() for name in FUNCTIONS}

    def machine(**options: Any) -> Json:  # noqa: ANN401 - those of a guard
        given = {
            "lock_name": "{% $states.input.lock %}",
            "lease_seconds": LEASE_SECONDS,
            "name": "Turn",
            **options,
        }
        return guarded_machine(_WORK, functions=arns, **given)

    made = {
        "queue": machine(max_wait_seconds=1800),
        "long queue": machine(max_wait_seconds=86_400),
        "poll": machine(max_wait_seconds=1800, waiting=WAYS_TO_WAIT["poll"]),
        "skip": machine(max_wait_seconds=0),
        "permits": machine(max_wait_seconds=1800, limit=100),
        "kept alive": machine(max_wait_seconds=1800, keep_alive_seconds=KEEP_ALIVE_SECONDS),
    }
    timeout = functions.FUNCTION_TIMEOUT_SECONDS
    return {
        "machines": made,
        "reaper": {
            "function timeout": timeout,
            "visibility timeout": timeout * reaper._TRIES_IN_A_VISIBILITY_TIMEOUT,  # noqa: SLF001 - what the stack has
            "batch": reaper._BATCH,  # noqa: SLF001
            "concurrency": reaper.DEFAULT_CONCURRENCY,
            "tries": reaper._MOST_TRIES,  # noqa: SLF001
            "message": reaper_rules.OF_WORKFLOWS.message,
            "paths": dict(reaper_rules.OF_WORKFLOWS.paths),
            "ends": list(reaper_rules.OF_WORKFLOWS.ends),
        },
    }


@cache
def earlier() -> Json:
    """What the earlier version's guards and stack made, as `machines.json` of today."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        found: Json = json.loads(archive.read(f"{ARCHIVE.stem}/{RECORDED.name}"))
    return found


def pack(folder: Path, archive: Path) -> None:
    """Packs what the functions of a checkout run, and the machines that it has recorded.

    What a module imports of its own version has the name of the archive before it.
    """
    name = archive.stem
    machines = folder / RECORDED.relative_to(Path(__file__).parents[2])
    packed = {f"{name}/__init__.py": "", f"{name}/{RECORDED.name}": machines.read_text()}
    for part in (*_PARTS, "lambdas"):
        for file in sorted((folder / part).glob("*.py")):
            source = _IMPORT.sub(rf"\1{name}.", file.read_text())
            packed[f"{name}/{file.relative_to(folder).as_posix()}"] = source
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path, text in packed.items():
            entry = zipfile.ZipInfo(path, _SAME_DATE)
            made.writestr(entry, text, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        text = json.dumps(made_today(), indent=1, sort_keys=True, ensure_ascii=False)
        RECORDED.write_text(f"{text}\n")
    else:
        pack(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve(), ARCHIVE)
