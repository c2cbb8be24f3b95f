"""What an execution costs is counted in its history."""

from examples.demo.bill import Bill, bill, summary
from tests.demo.builders import guarded_execution


def test_every_call_and_every_transition_is_on_the_bill() -> None:
    waited_twice = guarded_execution(asked_ms=0, granted_ms=3_000, released_ms=4_000)
    assert bill(waited_twice) == Bill(transitions=9, acquires=3, releases=1, charges=1)
    assert bill(waited_twice).lambda_requests == 5


def test_a_run_is_summed_up_by_its_cheapest_its_mean_and_its_dearest() -> None:
    at_once = guarded_execution()
    waited_twice = guarded_execution(asked_ms=0, granted_ms=3_000, released_ms=4_000)
    assert summary([at_once, waited_twice]) == (
        "5 to 9 (mean 7.0) state transitions and 3 to 5 (mean 4.0) Lambda requests an execution"
    )
    assert summary([at_once]) == "5 state transitions and 3 Lambda requests an execution"
    assert summary([]) == "nothing ran, nothing to pay"
