"""What an execution costs is counted in its history."""

from examples.demo.bill import Bill, bill, side_by_side
from examples.demo.facts import Run, Story
from tests.demo.builders import guarded_execution


def test_every_call_and_every_transition_is_on_the_bill() -> None:
    waited_twice = guarded_execution(asked_ms=0, granted_ms=3_000, released_ms=4_000)
    assert bill(waited_twice) == Bill(transitions=9, acquires=3, releases=1, charges=1)
    assert bill(waited_twice).lambda_requests == 5


def test_the_runs_stand_side_by_side_by_their_cheapest_dearest_and_mean_execution(
    story: Story,
) -> None:
    assert side_by_side(story.runs) == {
        "state transitions an execution": ("1", "5 to 11 (mean 7.7)", "4"),
        "Lambda requests an execution": ("1", "3 to 6 (mean 4.3)", "3"),
        "of these to ask for the lock": ("0", "1 to 4 (mean 2.3)", "1"),
        "lock idle between holders (median)": ("-", "500 ms", "40 ms"),
        "all done after": ("1.1 s", "4.1 s", "3.2 s"),
    }


def test_a_run_of_no_one_has_an_empty_bill(queue_run: Run) -> None:
    empty = Run(title="Nobody", mode=queue_run.mode, executions=(), accounts=())
    assert set(side_by_side([empty]).values()) == {("-",), ("0.0 s",)}
