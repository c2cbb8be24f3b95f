"""One row per execution, the same for the terminal and for the page. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from examples.demo.bill import bill
from examples.demo.facts import Execution, Interval, Run, Story
from examples.demo.ledger import statements

HEADINGS = (
    "execution",
    "outcome",
    "waited",
    "held",
    "fencing token",
    "transitions",
    "requests",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is said of one execution; `cells` are in the order of HEADINGS."""

    account_id: str
    cells: tuple[str, ...]
    bad: bool


def tables(story: Story) -> dict[str, tuple[Row, ...]]:
    """The rows of each part of the story."""
    parts = {run.title: tuple(_rows(run)) for run in story.runs}
    broken = (story.failed, story.stopped)
    parts["When something goes wrong"] = tuple(
        row
        for incident in broken
        for row in (
            _row(incident.broken, _outcome(incident.broken), bad=True),
            _row(incident.following, _outcome(incident.following), bad=False),
        )
    )
    return parts


def _rows(run: Run) -> Iterator[Row]:
    lost = {charge_id for s in statements(run) for charge_id in s.lost}
    for execution in run.executions:
        if execution.name in lost:
            yield _row(execution, "update lost", bad=True)
        else:
            yield _row(execution, _outcome(execution), bad=execution.status != "SUCCEEDED")


def _row(execution: Execution, outcome: str, *, bad: bool) -> Row:
    costs = bill(execution)
    return Row(
        account_id=execution.account_id,
        bad=bad,
        cells=(
            execution.name,
            outcome,
            _seconds(execution.waited),
            _seconds(execution.held),
            str(execution.grant.fencing_token) if execution.grant else "-",
            str(costs.transitions),
            str(costs.lambda_requests),
        ),
    )


def _outcome(execution: Execution) -> str:
    if execution.status == "FAILED" and execution.error:
        return execution.error
    words = {"SUCCEEDED": "done", "ABORTED": "stopped"}
    return words.get(execution.status, execution.status.lower())


def _seconds(interval: Interval | None) -> str:
    return f"{interval.seconds:.2f} s" if interval else "-"
