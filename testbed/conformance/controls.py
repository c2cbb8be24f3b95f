"""Negative controls: engines with a planted defect, which must be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aws_durable_execution_sdk_python_testing.executor import Executor

from testbed.conformance.embedded_aws import embedded_aws
from testbed.conformance.engine import LONGEST_SECONDS, Engine
from testbed.conformance.local_runner import local_runner
from testbed.conformance.outcome import Outcome, Verdict


@dataclass(frozen=True)
class Control:
    """A planted defect.

    Attributes:
        defect: what is wrong with the engine.
        engine: the engine that has it.
        requirement: which requirement must find it.
        verdict: as what.
    """

    defect: str
    engine: Callable[[], AbstractContextManager[Engine]]
    requirement: str
    verdict: Verdict

    def finds(self, judge: Callable[[Engine, str], Outcome]) -> bool:
        """Whether the defect is told as what it is."""
        with self.engine() as engine:
            return judge(engine, self.requirement).verdict is self.verdict


class _Planted:
    """An engine whose client answers something else to one call."""

    def __init__(self, engine: Engine, call: str, change: Callable[[Any], Any]) -> None:
        self._engine = engine
        self.client = self
        self._call, self._change = call, change

    def start(
        self, requirement: str, value: Any, notes: Path, *, longest: int = LONGEST_SECONDS
    ) -> str:
        return self._engine.start(requirement, value, notes, longest=longest)

    def __getattr__(self, call: str) -> Any:
        original = getattr(self._engine.client, call)
        if call != self._call:
            return original
        return lambda **named: self._change(original(**named))


@contextmanager
def _without_ends_of_waits() -> Iterator[Engine]:
    def without(answer: Any) -> Any:
        events = [each for each in answer["Events"] if each["EventType"] != "WaitSucceeded"]
        return {**answer, "Events": events}

    with local_runner() as engine:
        yield _Planted(engine, "get_durable_execution_history", without)


@contextmanager
def _with_another_result() -> Iterator[Engine]:
    with local_runner() as engine:
        yield _Planted(
            engine, "get_durable_execution", lambda answer: {**answer, "Result": '"another"'}
        )


@contextmanager
def _without_timeouts() -> Iterator[Engine]:
    original = Executor._schedule_callback_timeouts  # noqa: SLF001 - the defect is planted there
    Executor._schedule_callback_timeouts = lambda *_: None  # type: ignore[method-assign]  # noqa: SLF001 - same
    try:
        with local_runner() as engine:
            yield engine
    finally:
        Executor._schedule_callback_timeouts = original  # type: ignore[method-assign]  # noqa: SLF001 - same


CONTROLS: Final = (
    Control("an event is missing", _without_ends_of_waits, "2-1", Verdict.HISTORY),
    Control("the result is another one", _with_another_result, "1-1", Verdict.DIFFERENT),
    Control("a callback never times out", _without_timeouts, "4-14", Verdict.DIFFERENT),
    Control(
        "the embedded AWS without durable_operations",
        lambda: embedded_aws(without=("durable_operations",)),
        "1-18",
        Verdict.DIFFERENT,
    ),
    Control(
        "the embedded AWS without durable_history",
        lambda: embedded_aws(without=("durable_history",)),
        "1-11",
        Verdict.HISTORY,
    ),
)
