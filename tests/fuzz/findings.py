"""What a fuzzed call must never do, and the search for it in all that was written meanwhile."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from typing import Final

from fairlock.errors import FairlockError
from tests.fuzz.values import leaks

_KINDS: Final = (
    "untyped errors",
    "writes on refusal",
    "secrets in errors",
    "secrets in logs and metrics",
    "secrets in answers and reprs",
)
_MOST_KEPT: Final = 20


@dataclass
class Findings:
    """Figures of a run, and the first defects that it found.

    Attributes:
        outcomes: how many calls ended in which way.
        defects: by kind, how many there were.
        examples: the first of them, in words.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    defects: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def calls(self) -> int:
        return sum(self.outcomes.values())

    def add(self, kind: str, example: str) -> None:
        self.defects[kind] += 1
        if len(self.examples) < _MOST_KEPT:
            self.examples.append(f"{kind}: {example}")

    def judge_error(self, error: Exception, call: str) -> None:
        """An error must have a type of ours, and show no secret in any of its texts."""
        self.outcomes[type(error).__name__] += 1
        if not isinstance(error, FairlockError):
            shown = "".join(traceback.format_exception(error))
            self.add("untyped errors", f"{call} -> {shown}")
        for text in _texts(error):
            if leaks(text):
                self.add("secrets in errors", f"{call} -> {text}")

    def judge_output(self, output: str, call: str) -> None:
        """Logs and metrics must show no secret."""
        if output and leaks(output):
            self.add("secrets in logs and metrics", f"{call} -> {output}")

    def figures(self, name: str, seconds: float) -> str:
        found = ", ".join(f"{self.defects[kind]} {kind}" for kind in _KINDS)
        ways = ", ".join(f"{number:,} {way}" for way, number in self.outcomes.most_common())
        return f"{name}: {self.calls:,} calls in {seconds:.0f} s ({ways}): {found}"


def _texts(error: BaseException) -> Iterator[str]:
    """All that a traceback shows of an error and of what it was raised from."""
    seen: BaseException | None = error
    while seen is not None:
        yield str(seen)
        yield repr(seen)
        yield str([value for name, value in vars(seen).items() if name != "holders"])
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)


@contextmanager
def captured_log(stream: StringIO) -> Iterator[None]:
    """Writes our loggers' records of every level to a stream, with their tracebacks.

    boto3's own log at DEBUG shows whole requests, owner ids included; it is not ours.
    """
    logger = logging.getLogger("fairlock")
    handler, before = logging.StreamHandler(stream), (logger.handlers, logger.level)
    logger.handlers = [handler]  # The handlers' Powertools logger has the same name.
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.handlers = before[0]
        logger.setLevel(before[1])
