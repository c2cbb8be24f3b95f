"""What a run puts on its owner's bill, counted in histories, and what its waiting cost. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from examples.demo.facts import Execution, Role, Run
from examples.demo.handovers import median_idle_ms


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


def side_by_side(runs: Iterable[Run]) -> dict[str, tuple[str, ...]]:
    """What is compared, with a cell for each run: cheapest to dearest execution and their mean."""
    runs = tuple(runs)
    lines: dict[str, Callable[[Run], str]] = {
        "state transitions an execution": lambda run: spread(run, lambda b: b.transitions),
        "Lambda requests an execution": lambda run: spread(run, lambda b: b.lambda_requests),
        "of these to ask for the lock": lambda run: spread(run, lambda b: b.acquires),
        "lock idle between holders (median)": lambda run: idle(run) or "-",
        "all done after": lambda run: f"{run.lasted.seconds:.1f} s",
    }
    return {line: tuple(cell(run) for run in runs) for line, cell in lines.items()}


def spread(run: Run, of: Callable[[Bill], int]) -> str:
    """The least and the most an execution needed and their mean; one number if all are equal."""
    counts = [of(bill(execution)) for execution in run.executions]
    if not counts:
        return "-"
    if min(counts) == max(counts):
        return str(counts[0])
    return f"{min(counts)} to {max(counts)} (mean {sum(counts) / len(counts):.1f})"


def idle(run: Run) -> str:
    """For how long a lock was idle between two holders, in words; empty if none changed hands."""
    found = median_idle_ms(run.executions)
    return "" if found is None else f"{found:.0f} ms"
