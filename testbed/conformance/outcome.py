"""How a requirement ended on an engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What AWS's package says of a run."""

    AS_REQUIRED = "as required"
    HISTORY = "history differs"
    """Status, result and log are as required, what GetDurableExecutionHistory tells is not."""
    DIFFERENT = "different"
    """The status, the result or the log: what the function did."""
    FAILED = "could not run"
    """Neither: our program or the engine raised an error."""


@dataclass(frozen=True)
class Outcome:
    """A verdict, with the first thing that was not as required."""

    verdict: Verdict
    difference: str = ""
