"""`max_hold` of a guard: the time-out of its task is not longer, or synth refuses the guard."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock import InvalidRequest
from fairlock.cdk import Waiting
from fairlock.cdk.guard import guard_rules, standalone
from fairlock.cdk.guard.guard_rules import faults_of_end
from tests.unit.cdk.guard_forms import Case, Cases
from tests.unit.cdk.test_guard_shape import definition_of

TEN_MINUTES = Duration.minutes(10)
NO_END = "max_hold: needs a single task state with a time-out"
TOO_LONG = "max_hold: must be as long as the task may take"
FUNCTIONS = dict.fromkeys(standalone.FUNCTIONS, "arn")


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def case(app: App) -> Case:
    return Cases(app, "Cases").case("Case")


def ends_after(seconds: int) -> dict[str, Any]:
    timeout = sfn.Timeout.duration(Duration.seconds(seconds))
    return {"task_timeout": timeout, "retry_on_service_exceptions": False}


@pytest.mark.parametrize(
    "way",
    [
        {"waiting": Waiting.queue()},
        {"waiting": Waiting.poll()},
        {"max_wait": Duration.seconds(0)},
        {"express": True},
        {"keep_alive": Duration.seconds(20)},
        {"shared": True},
    ],
)
def test_a_task_with_a_time_out_is_guarded_as_without_max_hold(
    case: Case, way: dict[str, Any]
) -> None:
    plain = case.guard("Plain", case.call("A", **ends_after(600)), lock_name="x", **way)
    capped = case.guard(
        "Capped", case.call("B", **ends_after(600)), lock_name="x", max_hold=TEN_MINUTES, **way
    )
    states, expected = str(definition_of(capped).states), str(definition_of(plain).states)
    assert len(states.replace("Capped", "Plain")) == len(expected)


def test_in_jsonpath_it_is_the_same(case: Case) -> None:
    task = sfn.CustomState(
        case,
        "Custom",
        state_json={"Type": "Task", "Resource": "arn:aws:states:::x", "TimeoutSeconds": 600},
    )
    case.guard(task=task, max_hold=TEN_MINUTES)


def works_without_an_end(case: Case) -> dict[str, sfn.IChainable]:
    caught = case.call("Caught", **ends_after(5))
    caught.add_catch(case.step("After"))
    path = {"task_timeout": sfn.Timeout.at("{% $states.input.seconds %}")}
    return {
        "no time-out": case.call("NoTimeOut"),
        "a time-out of the input": case.call("ByInput", **path),
        "a chain": case.call("First", **ends_after(5)).next(case.call("Next", **ends_after(5))),
        "a catch": caught,
        "no task": case.step("Pass"),
        "a wait": sfn.Wait(case, "Wait", time=sfn.WaitTime.duration(Duration.seconds(1))),
        "a parallel": sfn.Parallel(case, "Parallel").branch(case.call("In", **ends_after(5))),
        "a guard": case.guard("Inner", case.call("Inside", **ends_after(5))),
    }


@pytest.mark.parametrize("kind", list(works_without_an_end(Cases(App(), "C").case("K"))))
def test_work_without_an_end_is_refused_and_what_to_do_is_told(case: Case, kind: str) -> None:
    with pytest.raises(InvalidRequest, match=NO_END) as refused:
        case.guard("Outer", works_without_an_end(case)[kind], max_hold=TEN_MINUTES)
    assert "Set its task_timeout (TimeoutSeconds) to a number" in str(refused.value)
    assert "start a chain as a workflow of its own" in str(refused.value)


def test_a_time_out_that_is_longer_is_refused(case: Case) -> None:
    with pytest.raises(InvalidRequest, match=TOO_LONG):
        case.guard(task=case.call("Long", **ends_after(601)), max_hold=TEN_MINUTES)


def test_the_retries_that_cdk_adds_count_with_their_pauses(case: Case) -> None:
    """Seven attempts, and 2 + 4 + 8 + 16 + 32 + 64 s between them."""
    timeout = sfn.Timeout.duration(Duration.seconds(60))
    enough, short = Duration.seconds(7 * 60 + 126), Duration.seconds(7 * 60 + 125)
    case.guard("Enough", case.call("A", task_timeout=timeout), max_hold=enough)
    with pytest.raises(InvalidRequest, match=TOO_LONG):
        case.guard("Short", case.call("B", task_timeout=timeout), max_hold=short)


@pytest.mark.parametrize(
    ("retry", "longest"),
    [
        ([], 10),
        ([{"ErrorEquals": ["States.ALL"]}], 10 + 3 * 10 + 1 + 2 + 4),
        ([{"MaxAttempts": 0}], 10),
        ([{"MaxAttempts": 2, "IntervalSeconds": 5, "BackoffRate": 1}], 3 * 10 + 10),
        ([{"MaxAttempts": 4, "IntervalSeconds": 5, "MaxDelaySeconds": 8}], 5 * 10 + 5 + 3 * 8),
        ([{"MaxAttempts": 1}, {"MaxAttempts": 2}], 4 * 10 + 1 + 1 + 2),
    ],
)
def test_all_attempts_and_their_pauses_have_to_fit(
    retry: list[dict[str, Any]], longest: int
) -> None:
    task = {"TimeoutSeconds": 10, "Retry": retry}
    assert list(faults_of_end(longest, task)) == []
    assert len(list(faults_of_end(longest - 1, task))) == 1
    assert list(faults_of_end(longest + 60, task, wait_seconds=60)) == []
    assert len(list(faults_of_end(longest + 59, task, wait_seconds=60))) == 1


def test_a_retry_of_a_hundred_million_attempts_is_refused_soon() -> None:
    task = {"TimeoutSeconds": 1, "Retry": [{"MaxAttempts": 99_999_999, "IntervalSeconds": 1}]}
    assert len(list(faults_of_end(3600, task))) == 1


def test_several_locks_are_held_while_the_guard_waits_for_the_last_one(case: Case) -> None:
    names = {"lock_name": ["a", "b"], "max_wait": Duration.minutes(5)}
    enough = Duration.seconds(300 + 600)
    case.guard("Enough", case.call("A", **ends_after(600)), max_hold=enough, **names)
    with pytest.raises(InvalidRequest, match="300 s may pass before it for the other locks"):
        case.guard("Short", case.call("B", **ends_after(600)), max_hold=TEN_MINUTES, **names)


@pytest.mark.parametrize("wrong", [600, "10m", Duration.millis(1500)])
def test_a_length_that_is_no_duration_of_seconds_is_refused(case: Case, wrong: Any) -> None:  # noqa: ANN401 - of any type
    with pytest.raises(InvalidRequest, match="max_hold: must be a"):
        case.guard(task=case.call("Work", **ends_after(5)), max_hold=wrong)


def guard_with_a_late_retry(case: Case) -> None:
    task = case.call("Work", **ends_after(400))
    case.machine(case.guard(task=task, max_hold=TEN_MINUTES))
    task.add_retry(max_attempts=2)


def test_a_retry_that_is_added_later_is_found_at_synth(app: App, case: Case) -> None:
    guard_with_a_late_retry(case)
    with pytest.raises(RuntimeError, match=TOO_LONG):
        app.synth()


def test_a_look_at_the_task_when_it_is_guarded_would_not_find_that(
    app: App, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    guard_with_a_late_retry(case)
    monkeypatch.setattr(guard_rules.EndOfHold, "faults", lambda _self: iter(()))
    app.synth()


TASK = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "TimeoutSeconds": 600}


def test_a_machine_without_an_app_obeys_the_same_rule() -> None:
    made = standalone.guarded_machine(
        TASK, functions=FUNCTIONS, lock_name="x", max_hold_seconds=600
    )
    assert made["States"]["Work"]["TimeoutSeconds"] == 600
    assert made == standalone.guarded_machine(TASK, functions=FUNCTIONS, lock_name="x")


@pytest.mark.parametrize(
    ("work", "options", "told"),
    [
        (TASK, {"max_hold_seconds": 599}, TOO_LONG),
        (TASK, {"max_hold_seconds": 600, "lock_name": ["x", "y"]}, TOO_LONG),
        ({"Type": "Pass"}, {"max_hold_seconds": 600}, NO_END),
        ({"StartAt": "A", "States": {"A": TASK, "B": TASK}}, {"max_hold_seconds": 600}, NO_END),
    ],
)
def test_a_machine_without_an_app_that_may_hold_longer_is_refused(
    work: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    arguments = {"lock_name": "x", **options}
    with pytest.raises(InvalidRequest, match=told):
        standalone.guarded_machine(work, functions=FUNCTIONS, **arguments)
