"""The definition of a guard that waits in the queue."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration

from fairlock.cdk import LockGuard, Waiting
from fairlock.cdk.guard.service_calls import FallbackPeriods, divide_wait, period_after_restart
from tests.unit.cdk.guard_forms import GuardFactory, request_of
from tests.unit.cdk.template import (
    EvaluationError,
    Handling,
    Scope,
    definition_of,
    evaluate,
    handling,
    machine_of,
)

Json = dict[str, Any]


def next_period(number: int, pause_seconds: int) -> Json:
    return {
        "ErrorEquals": ["States.Timeout"],
        "IntervalSeconds": pause_seconds,
        "BackoffRate": 1,
        "MaxAttempts": number - 1,
    }


@pytest.fixture(scope="module")
def machine(forms: Json) -> Scope:
    return machine_of(forms, "QueueFlat")


def acquire_of(guard: LockGuard) -> Json:
    """The definition of a guard's Acquire."""
    return dict(definition_of(guard).states["Guard: Acquire"])


def test_acquire_sleeps_on_a_task_token_and_repeats_only_what_may_help(forms: Json) -> None:
    machine = machine_of(forms, "QueueFlat")
    [variable] = machine.assigned()
    acquire = machine.states["Guard: Acquire"]
    assert acquire.pop("Arguments")["Payload"] == request_of(
        machine,
        waiting_since_ms=f"{{% ${variable}.waiting_since_ms %}}",
        task_token="{% $states.context.Task.Token %}",
        fallback_seconds=299,
    )
    assert acquire.pop("Resource").endswith(":states:::lambda:invoke.waitForTaskToken")
    unchanged, error = "{% $states.input %}", "{% $states.errorOutput %}"
    assert [set(rule.pop("Assign")) for rule in acquire["Catch"][:2]] == [{variable}, {variable}]
    unknown = acquire["Catch"].pop(2)
    assert unknown["ErrorEquals"] == ["States.QueryEvaluationError"]
    assert set(acquire.pop("Assign")) == {variable}
    polling = machine_of(forms, "Flat").states["Guard: Acquire"]
    assert acquire == {
        "Type": "Task",
        "QueryLanguage": "JSONata",
        "TimeoutSeconds": 299,
        "Retry": [next_period(6, pause_seconds=1), *polling["Retry"]],
        "Catch": [
            {"ErrorEquals": ["LockLost"], "Output": unchanged, "Next": "Guard: Time left?"},
            {"ErrorEquals": ["States.Timeout"], "Output": unchanged, "Next": "Guard: Give up"},
            {"ErrorEquals": ["States.ALL"], "Output": error, "Next": "Guard: Release after error"},
        ],
        "Output": unchanged,
        "Next": "Charge",
    }


def test_max_wait_is_as_many_tries_as_it_has_fallback_periods(guards: GuardFactory) -> None:
    for max_wait_seconds, fallback_seconds, seconds, number in (
        (5, 10, 5, 1),
        (8, 10, 8, 1),
        (25, 10, 8, 3),
        (1800, 300, 299, 6),
        (7 * 86_400, 12 * 3600, 43_199, 14),
    ):
        waiting = Waiting.queue(fallback=Duration.seconds(fallback_seconds))
        max_wait = Duration.seconds(max_wait_seconds)
        acquire = acquire_of(guards.guard(waiting=waiting, max_wait=max_wait))
        assert acquire["TimeoutSeconds"] == seconds
        assert acquire["Retry"][0] == next_period(number, pause_seconds=1)


def test_the_queue_is_the_default_and_polling_that_of_express(guards: GuardFactory) -> None:
    standard = acquire_of(guards.guard(waiting=None))
    express = acquire_of(guards.guard(waiting=None, express=True))
    assert standard["Resource"].endswith("lambda:invoke.waitForTaskToken")
    assert express["Resource"].endswith("lambda:invoke")


ENTERED_MS = 1_900_000_000_000
HALF_HOUR_MS = 1_800_000


def evaluated(
    machine: Scope,
    expression: str,
    *,
    waited_ms: int,
    restarts: int = 0,
    pause_seconds: int | None = None,
    redriven_at: str | None = None,
) -> Any:  # noqa: ANN401 - whatever the expression gives
    """An expression of a queueing guard whose acquisition was released `waited_ms` after entry."""
    [name] = machine.assigned()
    entry = {"lock_name": "customer/7", "owner_id": "me", "waiting_since_ms": ENTERED_MS}
    pause = {} if pause_seconds is None else {"pause_seconds": pause_seconds}
    redrive = {} if redriven_at is None else {"RedriveTime": redriven_at}
    return evaluate(
        expression,
        states={"context": {"Execution": {"Id": "arn", **redrive}}},
        variables={name: {**entry, "restarts": restarts, **pause}},
        now_ms=ENTERED_MS + waited_ms,
        functions={"uuid": lambda: "another"},
    )


@pytest.mark.parametrize("redriven", [False, True])
@pytest.mark.parametrize(
    ("waited_ms", "next_state"),
    [(0, "Guard: Wait"), (HALF_HOUR_MS - 1, "Guard: Wait"), (HALF_HOUR_MS, "Guard: Give up")],
)
def test_an_acquisition_that_was_released_meanwhile_waits_no_longer_than_from_its_first_entry(
    machine: Scope, waited_ms: int, next_state: str, *, redriven: bool
) -> None:
    """Or from a redrive on, which is an hour later here."""
    choice = machine.states["Guard: Time left?"]
    [rule] = choice["Choices"]
    since: Json = {"waited_ms": waited_ms}
    if redriven:
        since = {"waited_ms": 3_600_000 + waited_ms, "redriven_at": "2030-03-17T18:46:40.000Z"}
    is_over = evaluated(machine, rule["Condition"], **since)
    assert (rule["Next"] if is_over else choice["Default"]) == next_state


@pytest.mark.parametrize("state", ["Guard: Acquire", "Guard: Acquire again"])
@pytest.mark.parametrize(("restarts", "pause_seconds"), [(0, 1), (3, 8)])
def test_it_begins_again_as_another_owner_after_a_pause_that_doubles(
    machine: Scope, state: str, restarts: int, pause_seconds: int
) -> None:
    caught = machine.states[state]["Catch"][0]
    assert (caught["ErrorEquals"], caught["Next"]) == (["LockLost"], "Guard: Time left?")
    [assigned] = caught["Assign"].values()
    assert evaluated(machine, assigned, waited_ms=0, restarts=restarts) == {
        "lock_name": "customer/7",
        "owner_id": "another",
        "waiting_since_ms": ENTERED_MS,
        "restarts": restarts + 1,
        "pause_seconds": pause_seconds,
    }


def test_the_pause_before_it_never_exceeds_the_deadline(machine: Scope) -> None:
    wait = machine.states["Guard: Wait"]
    assert wait["Next"] == "Guard: Acquire again"
    for waited_ms, seconds in ((0, 8), (HALF_HOUR_MS - 3_000, 3), (HALF_HOUR_MS + 5_000, 1)):
        pause = evaluated(machine, wait["Seconds"], waited_ms=waited_ms, pause_seconds=8)
        assert pause == seconds


def test_after_a_restart_each_period_is_followed_by_a_look_at_the_time(machine: Scope) -> None:
    again = machine.states["Guard: Acquire again"]
    assert again["TimeoutSeconds"] == 90  # a twentieth of half an hour
    assert handling(again, "States.Timeout") == Handling(0, "Guard: Time left?")
    [assigned] = again["Catch"][1]["Assign"].values()
    lock = evaluated(machine, assigned, waited_ms=0, pause_seconds=64)
    assert (lock["owner_id"], lock["restarts"], lock["pause_seconds"]) == ("me", 0, 1)
    for error in ("LockStoreUnavailable", "InvalidRequest", "States.QueryEvaluationError"):
        assert handling(again, error) == handling(machine.states["Guard: Acquire"], error)
    assert again["Next"] == machine.states["Guard: Acquire"]["Next"]


@pytest.mark.parametrize("max_wait_seconds", [5, 300, 1800, 86_400, 6 * 86_400])
def test_a_wait_whose_every_acquisition_is_released_ends_after_few_restarts(
    guards: GuardFactory, max_wait_seconds: int
) -> None:
    guard = guards.guard(waiting=Waiting.queue(), max_wait=Duration.seconds(max_wait_seconds))
    machine = definition_of(guard)
    [rule] = machine.states["Guard: Time left?"]["Choices"]
    [restarted] = machine.states["Guard: Acquire again"]["Catch"][0]["Assign"].values()
    waited_ms, lock = 0, {"restarts": 0}
    while not evaluated(machine, rule["Condition"], waited_ms=waited_ms):
        lock = evaluated(machine, restarted, waited_ms=waited_ms, restarts=lock["restarts"])
        wait, pause_seconds = machine.states["Guard: Wait"]["Seconds"], lock["pause_seconds"]
        seconds = evaluated(machine, wait, waited_ms=waited_ms, pause_seconds=pause_seconds)
        waited_ms += 1000 * seconds
    assert waited_ms == max_wait_seconds * 1000
    assert 2 ** (lock["restarts"] - 1) <= max_wait_seconds + 1


OWN = {"lock_name": "customer/7", "owner_id": "me"}
GRANT = {"acquired": True, **OWN, "fencing_token": 41}


def checked(machine: Scope, answer: object) -> object:
    """What the guard's variable is after an answer to its Acquire."""
    [(name, expression)] = machine.states["Guard: Acquire"]["Assign"].items()
    lock = {**OWN, "waiting_since_ms": ENTERED_MS, "restarts": 2, "reason": "HELD"}
    result = answer if "Guard: Acquire again" in machine.states else {"Payload": answer}
    return evaluate(expression, states={"result": result}, variables={name: lock})


@pytest.mark.parametrize(
    "answer",
    [
        {**GRANT, "lock_name": "customer/8"},
        {**GRANT, "owner_id": "another"},
        *({"acquired": True}, {}, [], "granted", None),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["QueueFlat", "Flat", "Express"])
def test_an_answer_to_this_acquisition_is_believed_and_to_another_one_not(
    forms: Json, form: str, answer: object
) -> None:
    machine = machine_of(forms, form)
    kept = {"waiting_since_ms": ENTERED_MS, "restarts": 2}
    assert checked(machine, GRANT) == {**GRANT, **kept}
    with pytest.raises(EvaluationError, match="names another lock or another owner"):
        checked(machine, answer)
    if form == "QueueFlat":  # From the queue none is let in by an answer that grants nothing.
        with pytest.raises(EvaluationError):
            checked(machine, {**GRANT, "acquired": False})


@pytest.mark.parametrize(("form", "repeats"), [("QueueFlat", 8), ("Flat", 8), ("Express", 3)])
def test_an_answer_that_is_not_believed_is_an_unknown_outcome(
    forms: Json, form: str, repeats: int
) -> None:
    machine = machine_of(forms, form)
    acquire, error = machine.states["Guard: Acquire"], "States.QueryEvaluationError"
    assert handling(acquire, error) == Handling(repeats, "Guard: Release after error")
    [output] = [each["Output"] for each in acquire["Catch"] if error in each["ErrorEquals"]]
    [variable] = machine.assigned()
    assert output["Error"] == "LockStoreUnavailable"
    told = "lock customer/7: the answers were to another acquisition"
    assert evaluate(output["Cause"], variables={variable: OWN}) == told


# `max_wait` is divided into equal periods that add up to it.


@pytest.mark.parametrize("fallback_seconds", [10, 300, 3600])
def test_the_periods_add_up_to_max_wait_within_two_seconds_each_with_its_pause_a_fallback_period(
    fallback_seconds: int,
) -> None:
    for max_wait_seconds in (*range(5, 4000, 11), *range(4000, 7 * 86_400, 17_001)):
        if max_wait_seconds > fallback_seconds * 2000:
            continue
        periods = divide_wait(max_wait_seconds, fallback_seconds=fallback_seconds)
        assert abs(periods.total_seconds - max_wait_seconds) <= 2, (max_wait_seconds, periods)
        if max_wait_seconds > fallback_seconds:
            assert periods.seconds + periods.pause_seconds <= fallback_seconds


def test_a_period_after_a_restart_is_short_beside_the_wait_but_not_for_the_history() -> None:
    for max_wait_seconds, fallback_seconds, seconds in (
        (5, 300, 5),
        (60, 10, 5),
        (1800, 300, 90),
        (86_400, 300, 300),
        (86_400, 10, 86),  # else the events of its periods would fill the history
        (7 * 86_400, 43_200, 30_240),
        (900 * 86_400, 43_200, 43_200),  # the service refuses a longer one
    ):
        period = period_after_restart(max_wait_seconds, fallback_seconds=fallback_seconds)
        assert period == FallbackPeriods(number=1, seconds=seconds, pause_seconds=1)
