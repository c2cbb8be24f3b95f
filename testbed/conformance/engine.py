"""What a requirement needs of an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

LONGEST_SECONDS: Final = 7200


class Engine(Protocol):
    """Runs durable executions of the handlers."""

    @property
    def client(self) -> Any:
        """Has the calls of boto3's Lambda client that AWS's package uses."""
        ...

    def start(
        self, requirement: str, value: Any, notes: Path, *, longest: int = LONGEST_SECONDS
    ) -> str:
        """Starts an execution of a requirement's handler, which times out; answers its ARN."""
        ...


def event_of(requirement: str, value: Any, notes: Path) -> dict[str, Any]:
    """The input of an execution, see `testbed.conformance.handlers`."""
    return {"requirement": requirement, "input": value, "notes": str(notes)}
