"""What an execution puts on its owner's bill, counted in its history. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from examples.demo.facts import Execution, Role


@dataclass(frozen=True, kw_only=True)
class Bill:
    """State transitions (retries included) and Lambda requests of one execution."""

    transitions: int
    acquires: int
    releases: int
    charges: int

    @property
    def lambda_requests(self) -> int:
        """Every function called, the task itself included."""
        return self.acquires + self.releases + self.charges


def bill(execution: Execution) -> Bill:
    return Bill(
        transitions=execution.transitions,
        acquires=len(execution.calls_of(Role.ACQUIRE)),
        releases=len(execution.calls_of(Role.RELEASE)),
        charges=len(execution.calls_of(Role.CHARGE)),
    )


def summary(executions: Iterable[Execution]) -> str:
    """The bill of a run in one line: the cheapest, the mean and the dearest execution."""
    bills = [bill(execution) for execution in executions]
    if not bills:
        return "nothing ran, nothing to pay"
    transitions = _spread([b.transitions for b in bills])
    requests = _spread([b.lambda_requests for b in bills])
    return f"{transitions} state transitions and {requests} Lambda requests an execution"


def _spread(counts: list[int]) -> str:
    if min(counts) == max(counts):
        return str(counts[0])
    return f"{min(counts)} to {max(counts)} (mean {sum(counts) / len(counts):.1f})"
