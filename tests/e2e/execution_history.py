"""What an execution did and when, by the timestamps of its history.

Times measured from outside would include delays of the machine that runs the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_ENTERED: Final = "stateEnteredEventDetails"


@dataclass(frozen=True)
class ExecutionHistory:
    """The history of an execution. Times in epoch seconds."""

    events: Sequence[dict[str, Any]]

    def entered(self, state: str) -> float:
        """When a state was entered first. One that was never entered fails the test."""
        times = self.entries(state)
        assert times, f"{state} was never entered: {self}"
        return times[0]

    def entries(self, state: str, *, after: float = 0.0) -> list[float]:
        """When a state was entered since a moment, in whatever branch."""
        times = [_seconds(event) for event in self.events if _name(event) == state]
        return [entered for entered in times if entered > after]

    def calls(self, state: str, *, after: float = 0.0) -> list[float]:
        """When the task of a state was begun, repeated calls included, since a moment.

        Of an execution that runs one state after the other.
        """
        return [
            _seconds(event)
            for within, event in self._within()
            if within == state and event["type"] == "TaskScheduled" and _seconds(event) > after
        ]

    def _within(self) -> Iterator[tuple[str | None, dict[str, Any]]]:
        state = None
        for event in self.events:
            state = _name(event) or state
            yield state, event

    def __str__(self) -> str:
        """For the message of a test that fails."""
        if not self.events:
            return "nothing happened"
        began = _seconds(self.events[0])
        lines = [
            f"{_seconds(event) - began:8.3f} {event['type']} {_name(event) or ''}"
            for event in self.events
        ]
        return "\n".join(["", *lines])


def _name(event: dict[str, Any]) -> str | None:
    name: str | None = event.get(_ENTERED, {}).get("name")
    return name


def _seconds(event: dict[str, Any]) -> float:
    return float(event["timestamp"].timestamp())
