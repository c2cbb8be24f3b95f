"""How a guard waits, by polling or in the queue: what its states do, and what its JSONata gives."""

from __future__ import annotations

import pytest
from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import Waiting
from fairlock.cdk.guard.service_calls import FallbackPeriods, divide_wait, period_after_restart
from tests.unit.cdk.guard_forms import Cases, request_of
from tests.unit.cdk.template import (
    EvaluationError,
    Json,
    Scope,
    definition_of,
    evaluate,
    handling,
    happy_path,
    machine_of,
    successors,
    ways_out_unreleased,
)

ENTERED_MS = 1_900_000_000_000
HALF_HOUR_MS = 1_800_000
REDRIVEN_AT = "2030-03-17T18:46:40.000Z"
"""An hour after the guard was entered."""
OWN = {"lock_name": "customer/7", "owner_id": "me"}


def next_period(number: int) -> Json:
    pauses = {"IntervalSeconds": 1, "BackoffRate": 1}
    return {"ErrorEquals": ["States.Timeout"], **pauses, "MaxAttempts": number - 1}


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
        "Retry": [next_period(6), *polling["Retry"]],
        "Catch": [
            {"ErrorEquals": ["LockLost"], "Output": unchanged, "Next": "Guard: Time left?"},
            {"ErrorEquals": ["States.Timeout"], "Output": unchanged, "Next": "Guard: Give up"},
            {"ErrorEquals": ["States.ALL"], "Output": error, "Next": "Guard: Release after error"},
        ],
        "Output": unchanged,
        "Next": "Charge",
    }


def test_max_wait_is_as_many_tries_as_it_has_fallback_periods(guards: Cases) -> None:
    for max_wait_seconds, fallback_seconds, seconds, number in (
        *((5, 10, 5, 1), (8, 10, 8, 1), (25, 10, 8, 3)),
        *((1800, 300, 299, 6), (7 * 86_400, 12 * 3600, 43_199, 14)),
    ):
        waiting = Waiting.queue(fallback=Duration.seconds(fallback_seconds))
        max_wait = Duration.seconds(max_wait_seconds)
        states = guards.definition(waiting=waiting, max_wait=max_wait).states
        acquire = states["Guard: Acquire"]
        assert (acquire["TimeoutSeconds"], acquire["Retry"][0]) == (seconds, next_period(number))


def test_the_queue_is_the_default_and_polling_that_of_express(guards: Cases) -> None:
    for express, resource in ((False, "lambda:invoke.waitForTaskToken"), (True, "lambda:invoke")):
        states = guards.definition(waiting=None, express=express).states
        assert states["Guard: Acquire"]["Resource"].endswith(resource)


# What the expressions give, at a time after the guard was entered.


def at(machine: Scope, waited_ms: int = 0, *, redriven: bool = False, **fields: object) -> Json:
    """So long after a guard was entered, whose variable has these fields."""
    redrive = {"RedriveTime": REDRIVEN_AT} if redriven else {}
    lock = {**OWN, "waiting_since_ms": ENTERED_MS, "restarts": 0, **fields}
    return {
        "states": {"context": {"Execution": {"Id": "arn", **redrive}}},
        "variables": {machine.variable: lock},
        "now_ms": ENTERED_MS + waited_ms,
        "functions": {"uuid": lambda: "another"},
    }


def test_the_answer_decides_where_to_go(forms: Json) -> None:
    machine = machine_of(forms, "Flat")
    refused: list[Json] = [{"reason": reason} for reason in ("ALREADY_RELEASED", "HELD")]
    for fields, waited_ms, then in (
        *(({"acquired": True}, waited_ms, "Charge") for waited_ms in (0, HALF_HOUR_MS + 1)),
        *(({"acquired": False, **each}, HALF_HOUR_MS - 1, "Guard: Wait") for each in refused),
        *(({"acquired": False, **each}, HALF_HOUR_MS, "Guard: Give up") for each in refused),
        ({}, 0, "Guard: Wait"),
    ):
        given = at(machine, waited_ms, **fields)
        assert machine.chosen("Guard: Acquired?", **given) == then, (fields, waited_ms)


def test_an_acquisition_released_meanwhile_waits_as_from_its_first_entry(forms: Json) -> None:
    """Or from a redrive on."""
    machine = machine_of(forms, "QueueFlat")
    ways = ((0, "Wait"), (HALF_HOUR_MS - 1, "Wait"), (HALF_HOUR_MS, "Give up"))
    for since_ms, redriven in ((0, False), (3_600_000, True)):
        for waited_ms, then in ways:
            given = at(machine, since_ms + waited_ms, redriven=redriven)
            assert machine.chosen("Guard: Time left?", **given) == f"Guard: {then}", given


def test_the_wait_is_the_advice_or_the_pause_but_never_past_the_deadline(forms: Json) -> None:
    for form, field in (("Flat", "retry_after_seconds"), ("QueueFlat", "pause_seconds")):
        machine = machine_of(forms, form)
        wait = machine.states["Guard: Wait"]
        fields: Json = {field: 8}
        for waited_ms, seconds in (
            (0, 8),
            (HALF_HOUR_MS - 2_001, 3),  # rounded up, so that the last try is not too early
            (HALF_HOUR_MS - 1, 1),
            (HALF_HOUR_MS + 5_000, 1),
        ):
            assert evaluate(wait["Seconds"], **at(machine, waited_ms, **fields)) == seconds
        assert wait["Next"] == ("Guard: Acquire" if form == "Flat" else "Guard: Acquire again")


def test_a_poll_after_a_release_meanwhile_is_another_owners(forms: Json) -> None:
    machine = machine_of(forms, "Flat")
    wait = machine.states["Guard: Wait"]
    for reason, seconds, owner_id, restarts in (
        ("HELD", 7, "me", 3),
        ("ALREADY_RELEASED", 8, "another", 4),
    ):
        given = at(machine, retry_after_seconds=7, restarts=3, reason=reason)
        assert evaluate(wait["Seconds"], **given) == seconds
        lock = evaluate(wait["Assign"][machine.variable], **given)
        lock.pop("pause_seconds", None)
        before = given["variables"][machine.variable]
        assert lock == {**before, "owner_id": owner_id, "restarts": restarts}


def test_in_the_queue_it_begins_again_as_another_owner_after_a_pause(forms: Json) -> None:
    machine = machine_of(forms, "QueueFlat")
    for state in ("Guard: Acquire", "Guard: Acquire again"):
        caught = machine.states[state]["Catch"][0]
        assert (caught["ErrorEquals"], caught["Next"]) == (["LockLost"], "Guard: Time left?")
        for restarts, pause_seconds in ((0, 1), (3, 8)):
            given = at(machine, restarts=restarts)
            assert evaluate(caught["Assign"][machine.variable], **given) == {
                **given["variables"][machine.variable],
                "owner_id": "another",
                "restarts": restarts + 1,
                "pause_seconds": pause_seconds,
            }


def test_after_a_restart_each_period_is_followed_by_a_look_at_the_time(forms: Json) -> None:
    machine = machine_of(forms, "QueueFlat")
    first, again = (machine.states[f"Guard: {name}"] for name in ("Acquire", "Acquire again"))
    assert again["TimeoutSeconds"] == 90  # a twentieth of half an hour
    assert handling(again, "States.Timeout") == (0, "Guard: Time left?")
    [assigned] = again["Catch"][1]["Assign"].values()
    lock = evaluate(assigned, **at(machine, pause_seconds=64))
    assert (lock["owner_id"], lock["restarts"], lock["pause_seconds"]) == ("me", 0, 1)
    for error in ("LockStoreUnavailable", "InvalidRequest", "States.QueryEvaluationError"):
        assert handling(again, error) == handling(first, error)
    assert again["Next"] == first["Next"]


def test_a_wait_whose_every_acquisition_is_released_ends_after_few_restarts(guards: Cases) -> None:
    for max_wait_seconds in (5, 300, 1800, 86_400, 6 * 86_400):
        max_wait = Duration.seconds(max_wait_seconds)
        machine = guards.definition(waiting=Waiting.queue(), max_wait=max_wait)
        pause = machine.states["Guard: Wait"]["Seconds"]
        [restarted] = machine.states["Guard: Acquire again"]["Catch"][0]["Assign"].values()
        waited_ms = 0
        lock: Json = {"restarts": 0}
        while machine.chosen("Guard: Time left?", **at(machine, waited_ms)) == "Guard: Wait":
            lock = evaluate(restarted, **at(machine, waited_ms, **lock))
            waited_ms += 1000 * evaluate(pause, **at(machine, waited_ms, **lock))
        assert waited_ms == max_wait_seconds * 1000
        assert 2 ** (lock["restarts"] - 1) <= max_wait_seconds + 1


def test_the_timeout_says_how_long_and_who_holds(forms: Json) -> None:
    machine = machine_of(forms, "Flat")
    timed_out = machine.states["Guard: Timed out"]
    assert timed_out["Error"] == "LockWaitTimeout"
    told = "lock customer/7 was not granted within max_wait of 1800 s (waited 1801 s), held by "
    for names, shown in ((["one"], "one"), ([*"012345678"], "0, 1, 2, 3, 4"), ([], "")):
        holders = [{"owner_name": name} for name in names]
        given = at(machine, HALF_HOUR_MS + 1_500, holders=holders)
        assert evaluate(timed_out["Cause"], **given) == told + shown


# Which answers are believed.

GRANT = {"acquired": True, **OWN, "fencing_token": 41}
OTHERS = ({"lock_name": "customer/8"}, {"owner_id": "another"})
NOT_MINE: list[object] = [
    *({**GRANT, **other} for other in OTHERS),
    {"acquired": True},
    {},
    [],
    "text",
    None,
]


@pytest.mark.parametrize(("form", "repeats"), [("QueueFlat", 8), ("Flat", 8), ("Express", 3)])
def test_an_answer_to_this_acquisition_is_believed_and_that_to_another_one_is_unknown(
    forms: Json, form: str, repeats: int
) -> None:
    machine = machine_of(forms, form)
    acquire, error = machine.states["Guard: Acquire"], "States.QueryEvaluationError"
    [(variable, expression)] = acquire["Assign"].items()
    kept = {"waiting_since_ms": ENTERED_MS, "restarts": 2}

    def checked(answer: object) -> object:
        """What the guard's variable is after an answer."""
        result = answer if form == "QueueFlat" else {"Payload": answer}
        lock = {variable: {**OWN, **kept, "reason": "HELD"}}
        return evaluate(expression, states={"result": result}, variables=lock)

    assert checked(GRANT) == {**GRANT, **kept}
    for answer in NOT_MINE:
        with pytest.raises(EvaluationError, match="names another lock or another owner"):
            checked(answer)
    if form == "QueueFlat":  # From the queue none is let in by an answer that grants nothing.
        with pytest.raises(EvaluationError):
            checked({**GRANT, "acquired": False})
    assert handling(acquire, error) == (repeats, "Guard: Release after error")
    [output] = [each["Output"] for each in acquire["Catch"] if error in each["ErrorEquals"]]
    assert output["Error"] == "LockStoreUnavailable"
    told = "lock customer/7: the answers were to another acquisition"
    assert evaluate(output["Cause"], variables={variable: OWN}) == told


# A guard that skips a busy lock: `max_wait` is zero.


@pytest.mark.parametrize(
    "props",
    [{"waiting": Waiting.queue()}, {"waiting": Waiting.poll()}, {"waiting": None, "express": True}],
    ids=["queue", "poll", "express"],
)
def test_it_asks_once_and_then_works_or_gives_up(guards: Cases, props: Json) -> None:
    machine = guards.definition(max_wait=Duration.seconds(0), **props)
    acquire = machine.states["Guard: Acquire"]
    assert acquire["Resource"].endswith(":states:::lambda:invoke")
    assert "task_token" not in acquire["Arguments"]["Payload"]
    asking = [name for name, each in machine.states.items() if "Guard: Acquire" in successors(each)]
    assert asking == ["Guard: Enter"]
    for is_acquired, then in ((True, "Guard: Work"), (False, "Guard: Give up")):
        assert machine.chosen("Guard: Acquired?", **at(machine, acquired=is_acquired)) == then
    # With the branch of a work that is no bare task.
    path = ["Guard: Enter", "Guard: Acquire", "Guard: Acquired?", "Guard: Work", "Work"]
    assert happy_path(machine) == [*path, "Guard: Release"]
    # Also after a refusal: a call that was repeated may have left one under way.
    assert ways_out_unreleased(machine, "Guard: Acquire") == set()


def test_a_busy_lock_leads_to_where_a_wait_that_is_over_leads(guards: Cases) -> None:
    elsewhere = sfn.Pass(guards, "Skipped")
    guard = guards.guard(max_wait=Duration.seconds(0), on_timeout=elsewhere)
    assert definition_of(guard).states["Guard: Give up"]["Next"] == "Skipped"


# `max_wait` is divided into equal periods that add up to it.


def test_the_periods_add_up_to_max_wait_within_two_seconds() -> None:
    """Each with its pause is as long as a fallback period at most."""
    for fallback_seconds in (10, 300, 3600):
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
