"""What the guard's JSONata gives, evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cdk.asl import Scope, evaluate, machine_of

Json = dict[str, Any]

ENTERED_MS = 1_900_000_000_000
HALF_HOUR_MS = 1_800_000


@pytest.fixture(scope="module")
def machine(forms: Json) -> Scope:
    return machine_of(forms, "Flat")


def lock_variable(machine: Scope, **fields: object) -> Json:
    [name] = machine.assigned()
    return {name: {"lock_name": "customer/7", "waiting_since_ms": ENTERED_MS, **fields}}


def chosen(machine: Scope, *, now_ms: int, **fields: object) -> str:
    """The state after "Acquired?"."""
    choice = machine.states["Guard: Acquired?"]
    for rule in choice["Choices"]:
        if evaluate(rule["Condition"], variables=lock_variable(machine, **fields), now_ms=now_ms):
            return str(rule["Next"])
    return str(choice["Default"])


def test_acquire_assigns_the_answer_and_the_time_of_entry(machine: Scope) -> None:
    [(name, expression)] = machine.states["Guard: Acquire"]["Assign"].items()
    answer = {"acquired": True, "lock_name": "customer/7", "owner_id": "me", "fencing_token": 41}
    own = {
        "lock_name": "customer/7",
        "owner_id": "me",
        "waiting_since_ms": ENTERED_MS,
        "restarts": 2,
    }
    kept = evaluate(
        expression,
        states={"result": {"Payload": answer}},
        variables={name: {**own, "reason": "HELD"}},
    )
    assert kept == {**answer, "waiting_since_ms": ENTERED_MS, "restarts": 2}


@pytest.mark.parametrize(
    ("fields", "waited_ms", "next_state"),
    [
        ({"acquired": True}, 0, "Charge"),
        ({"acquired": True}, HALF_HOUR_MS + 1, "Charge"),
        ({"acquired": False, "reason": "ALREADY_RELEASED"}, 0, "Guard: Wait"),
        ({"acquired": False, "reason": "ALREADY_RELEASED"}, HALF_HOUR_MS, "Guard: Give up"),
        ({"acquired": False, "reason": "HELD"}, HALF_HOUR_MS - 1, "Guard: Wait"),
        ({"acquired": False, "reason": "HELD"}, HALF_HOUR_MS, "Guard: Give up"),
        ({}, 0, "Guard: Wait"),
    ],
)
def test_the_answer_decides_where_to_go(
    machine: Scope, fields: Json, waited_ms: int, next_state: str
) -> None:
    assert chosen(machine, now_ms=ENTERED_MS + waited_ms, **fields) == next_state


@pytest.mark.parametrize(
    ("advised", "waited_ms", "seconds"),
    [
        (7, 0, 7),
        (7, HALF_HOUR_MS - 2_001, 3),  # rounded up, so that the last try is not before the deadline
        (7, HALF_HOUR_MS - 1, 1),
        (7, HALF_HOUR_MS + 5_000, 1),
    ],
)
def test_the_wait_is_the_advice_but_never_past_the_deadline(
    machine: Scope, advised: int, waited_ms: int, seconds: int
) -> None:
    variables = lock_variable(machine, retry_after_seconds=advised)
    expression = machine.states["Guard: Wait"]["Seconds"]
    assert evaluate(expression, variables=variables, now_ms=ENTERED_MS + waited_ms) == seconds


@pytest.mark.parametrize(
    ("reason", "seconds", "owner_id", "restarts"),
    [("HELD", 7, "me", 3), ("ALREADY_RELEASED", 8, "another", 4)],
)
def test_an_acquisition_that_was_released_meanwhile_begins_again_as_another_owner(
    machine: Scope, reason: str, seconds: int, owner_id: str, restarts: int
) -> None:
    answer = {"retry_after_seconds": 7, "owner_id": "me", "restarts": 3, "reason": reason}
    variables, wait = lock_variable(machine, **answer), machine.states["Guard: Wait"]
    [(name, assigned)] = wait["Assign"].items()
    assert evaluate(wait["Seconds"], variables=variables, now_ms=ENTERED_MS) == seconds
    lock = evaluate(assigned, variables=variables, functions={"uuid": lambda: "another"})
    lock.pop("pause_seconds", None)
    assert lock == {**variables[name], "owner_id": owner_id, "restarts": restarts}


@pytest.mark.parametrize(
    ("holders", "shown"),
    [
        ([{"owner_name": "one"}], "one"),
        ([{"owner_name": str(number)} for number in range(9)], "0, 1, 2, 3, 4"),
        ([], ""),
    ],
)
def test_the_timeout_says_which_lock_how_long_and_who_holds_it(
    machine: Scope, holders: list[Json], shown: str
) -> None:
    timed_out = machine.states["Guard: Timed out"]
    cause = evaluate(
        timed_out["Cause"],
        variables=lock_variable(machine, holders=holders),
        now_ms=ENTERED_MS + HALF_HOUR_MS + 1_500,
    )
    assert timed_out["Error"] == "LockWaitTimeout"
    assert cause == (
        "lock customer/7 was not granted within max_wait of 1800 s (waited 1801 s), "
        f"held by {shown}"
    )


@pytest.mark.parametrize(
    ("error_output", "error", "cause"),
    [
        ({"Error": "CardDeclined", "Cause": "no funds"}, "CardDeclined", "no funds"),
        ({"Error": "CardDeclined"}, "CardDeclined", ""),
        ({"Error": "CardDeclined", "Cause": None}, "CardDeclined", ""),
        ({}, "States.TaskFailed", ""),
    ],
)
def test_the_error_of_the_work_leaves_as_it_is(
    machine: Scope, error_output: Json, error: str, cause: str
) -> None:
    failed = machine.states["Guard: Failed"]
    assert evaluate(failed["Error"], states={"input": error_output}) == error
    assert evaluate(failed["Cause"], states={"input": error_output}) == cause


@pytest.mark.parametrize(
    "value", [{"a": [1]}, [1, 2], [7], [[7]], [], "text", "", 0, 1.5, True, False, None]
)
def test_the_one_result_of_the_branch_leaves_the_guard_unchanged(
    forms: Json, value: object
) -> None:
    output = machine_of(forms, "Chain").states["Guard: Work"]["Output"]
    assert evaluate(output, states={"result": [value]}) == value
