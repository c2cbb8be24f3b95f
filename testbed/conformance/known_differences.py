"""Differences that are known, and what is not run. docs/durable-conformance.md shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from testbed.conformance.outcome import Verdict


@dataclass(frozen=True)
class Difference:
    """A difference that is known.

    Attributes:
        verdict: how the requirement ends.
        reason: what the engine does instead.
        relied_on: whether `hold` or its tests rely on what AWS does, and why not.
    """

    verdict: Verdict
    reason: str
    relied_on: str


_ATTEMPTS: Final = Difference(
    Verdict.HISTORY,
    "the history lacks the repeated attempts of a step",
    "no: no history is read",
)
_DEATHS: Final = Difference(
    Verdict.HISTORY,
    "the history lacks an invocation that ended with its process",
    "no: no history is read",
)
_TIMEOUTS: Final = Difference(
    Verdict.HISTORY,
    "the error of a callback that timed out has no ErrorType",
    "no: a CallbackError is enough",
)
_CONDITIONS: Final = Difference(
    Verdict.DIFFERENT,
    "each poll begins with the first state",
    "no: `hold` waits for callbacks only",
)
_POLLS: Final = Difference(
    Verdict.HISTORY,
    "the history lacks a repeated poll",
    "no: no history is read",
)

OF_LOCAL_RUNNER: Final[Mapping[str, Difference]] = {
    **dict.fromkeys(("1-11", "1-12", "1-13", "1-14", "1-15", "3-7", "3-8", "7-7"), _ATTEMPTS),
    **dict.fromkeys(("1-17", "1-18", "3-12"), _DEATHS),
    **dict.fromkeys(("4-3", "4-4", "4-8", "4-11", "4-14", "7-5", "7-12", "7-14"), _TIMEOUTS),
    **dict.fromkeys(("6-1", "6-3", "6-4", "6-5", "6-9", "6-11", "6-12", "6-13"), _CONDITIONS),
    "6-6": _POLLS,
}
OF_EMBEDDED_AWS: Final[Mapping[str, Difference]] = {}

NOT_RUN: Final[Mapping[str, str]] = {
    "invoke": "`hold` calls the service in steps, by Lambda's Invoke, not by `context.invoke`",
    "plugin": "plugins belong to the SDK alone; no engine knows of them",
}
"""By suite, why."""
