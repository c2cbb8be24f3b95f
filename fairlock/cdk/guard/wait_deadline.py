"""The end of a guard's wait, in JSONata: `max_wait` after the guard was first entered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairlock.cdk.workflow_variable import WorkflowVariable

_REDRIVEN_AT: Final = "$states.context.Execution.RedriveTime"
_REDRIVEN_AT_MS: Final = f"($exists({_REDRIVEN_AT}) ? $toMillis({_REDRIVEN_AT}) : 0)"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitDeadline:
    """When a wait is over, however often the acquisition began anew meanwhile.

    A redrive begins the wait once more: it may come days after the execution was stopped.
    """

    variable: WorkflowVariable
    max_wait_seconds: int

    @property
    def is_over(self) -> str:
        """Whether the time is up."""
        return f"$millis() >= {self._at_ms}"

    @property
    def remaining_seconds(self) -> str:
        """How long the wait may last yet, rounded up."""
        return f"$ceil(({self._at_ms} - $millis()) / 1000)"

    @property
    def _at_ms(self) -> str:
        began_ms = f"$max([{self.variable.field('waiting_since_ms')}, {_REDRIVEN_AT_MS}])"
        return f"{began_ms} + {self.max_wait_seconds * 1000}"
