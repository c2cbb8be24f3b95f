"""How long a lock was idle is counted only while another caller waited for it."""

from dataclasses import replace

import pytest

from examples.demo.facts import Interval, Run
from examples.demo.handovers import Handover, handovers, idle_between, median_idle_ms
from tests.demo.builders import guarded_execution, turn_taking


def test_the_idle_time_is_from_the_question_for_release_to_the_arrival_of_the_next_grant() -> None:
    first, second = turn_taking(count=2, between_ms=40)
    assert handovers([second, first]) == [
        Handover(
            account_id="alice",
            departing="alice-1",
            follower="alice-2",
            idle=Interval(start_ms=1_100, end_ms=1_140),
        )
    ]
    assert idle_between(first, second) == Interval(start_ms=1_100, end_ms=1_140)
    assert idle_between(second, first) is None


def test_a_lock_that_no_one_waited_for_was_not_kept_from_anybody() -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    late = guarded_execution("a-2", asked_ms=1_100, granted_ms=1_200, released_ms=2_000)
    assert handovers([first, late]) == []


def test_an_overlap_is_no_handover() -> None:
    first = guarded_execution("a-1", granted_ms=100, released_ms=1_100)
    early = guarded_execution("a-2", granted_ms=1_099, released_ms=2_000)
    assert handovers([first, early]) == []


def test_locks_change_hands_each_for_itself(queue_run: Run, polling_run: Run) -> None:
    assert len(handovers(queue_run.executions)) == 4
    assert median_idle_ms(queue_run.executions) == 40
    assert median_idle_ms(polling_run.executions) == 500


def test_without_a_handover_there_is_no_median(unguarded_run: Run) -> None:
    assert median_idle_ms(unguarded_run.executions) is None
    assert median_idle_ms([replace(guarded_execution(), calls=())]) is None


@pytest.mark.parametrize(("end_ms", "said"), [(57, "57 ms"), (999, "999 ms"), (1_000, "1.0 s")])
def test_an_interval_is_said_in_the_unit_that_fits(end_ms: int, said: str) -> None:
    assert str(Interval(start_ms=0, end_ms=end_ms)) == said
