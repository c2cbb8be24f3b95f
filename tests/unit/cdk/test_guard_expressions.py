"""What the guard's JSONata gives, evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import Duration, Stack

from fairlock.cdk import Waiting
from fairlock.cdk.guard.standalone import FUNCTIONS, guarded_machine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.asl import Scope, evaluate, machine_of
from tests.unit.cdk.guard_forms import GuardFactory
from tests.unit.cdk.test_guard_keep_alive import rendered

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


# `LockGuard(shared=True)`: what its states ask for.

ARNS = {name: f"${{{name}}}" for name in FUNCTIONS}
WORK = {"Type": "Pass"}
EXPRESSION = "{% $states.input.readers %}"


@pytest.fixture
def guards() -> GuardFactory:
    return GuardFactory(Stack())


def requests(guards: GuardFactory, **options: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - a guard's
    for state in rendered(guards.guard(**options)):
        payload = state.get("Arguments", {}).get("Payload", {})
        if "lease_seconds" in payload:
            yield payload


@pytest.mark.parametrize("waiting", [Waiting.poll(), Waiting.queue()])
def test_acquire_and_heartbeat_ask_to_share(guards: GuardFactory, waiting: Waiting) -> None:
    made = [*requests(guards, shared=True, keep_alive=Duration.seconds(5), waiting=waiting)]
    assert len(made) >= 2
    assert {(each["shared"], each["limit"]) for each in made} == {(True, 20)}


@pytest.mark.parametrize("limit", [3, EXPRESSION])
def test_so_many_readers_as_the_guard_says(guards: GuardFactory, limit: int | str) -> None:
    [made] = requests(guards, shared=True, limit=limit)
    assert made["limit"] == 3 or "limit" in made["limit"]


def test_a_plain_guard_asks_for_nothing_more(guards: GuardFactory) -> None:
    assert not [each for each in requests(guards) if "shared" in each]


def test_express_workflows_share_too(guards: GuardFactory) -> None:
    [made] = requests(guards, shared=True, express=True)
    assert made["shared"]


def test_shared_is_true_or_false(guards: GuardFactory) -> None:
    with pytest.raises(InvalidRequest, match=r"^shared: must be True or False"):
        guards.guard(shared="yes")


def test_without_cdk_a_machine_shares_too() -> None:
    machine = guarded_machine(WORK, functions=ARNS, lock_name="x", shared=True)
    text = str(machine)
    assert "'shared': True" in text
    assert "'limit': 20" in text


# A release that fails for good beside a heartbeat: the result is carried out in an error.

FENCING_TOKEN = 1_900_000_000_000_001
"""Sixteen digits."""
RESULTS = [
    {"a": [1], "token": FENCING_TOKEN},
    {},
    [1, 2],
    [7],
    [[7]],
    [[]],
    [],
    "text",
    'quo"ted',
    "",
    0,
    1.5,
    2**53,
    True,
    False,
    None,
    {"a": None},
]


@pytest.fixture(scope="module")
def work(forms: Json) -> Json:
    return dict(machine_of(forms, "KeepAliveFlat").states["Guard: Work"])


@pytest.fixture(scope="module")
def failure(work: Json) -> Json:
    [body, _] = work["Branches"]
    return dict(Scope(body["States"], body["StartAt"]).states["Guard: Lock not released"])


def raised(failure: Json, result: object, **functions: Any) -> tuple[str, str]:  # noqa: ANN401 - functions of JSONata
    """Error and cause with which the branch of the work ends."""
    [variable] = re.findall(r"\$(lock_\w+)\.lock_name", failure["Cause"])
    context: Json = {
        "states": {"input": result},
        "variables": {variable: {"lock_name": "customer/7"}},
        "functions": functions,
    }
    return evaluate(failure["Error"], **context), evaluate(failure["Cause"], **context)


def rounding(value: object) -> str:
    """`$string` of an engine that keeps 15 digits, as the JSONata documents say."""
    text = json.dumps(value)
    return json.dumps(json.loads(text, parse_int=lambda digits: int(float(f"{int(digits):.15g}"))))


def as_javascript(value: object) -> str:
    """`$string` of an engine that escapes no more than it must."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_the_result_stands(work: Json, failure: Json, result: object) -> None:
    catch = work["Catch"][0]
    error, cause = raised(failure, result)
    assert [error] == catch["ErrorEquals"]
    assert evaluate(catch["Output"], states={"errorOutput": {"Cause": cause}}) == result


def test_a_result_that_is_too_long_for_a_cause_is_an_error_of_its_own(failure: Json) -> None:
    room = 32_768 - len(json.dumps({"result": ""}, separators=(",", ":")))
    assert raised(failure, "x" * room)[0].startswith("LockNotReleased.")
    assert raised(failure, "x" * (room + 1)) == (
        "LockNotReleased",
        "the work is done; the lock customer/7 could not be released, nor the result be handed on",
    )


@pytest.mark.parametrize("character", ["ä", "\u20ac", "\U0001f600", "\x7f"], ids=ascii)
def test_what_is_not_ascii_is_counted_as_four_bytes(failure: Json, character: str) -> None:
    """No one says whether Step Functions counts characters or bytes: it must not cut the result."""
    room = (32_768 - len('{"result":""}')) // 4
    error, cause = raised(failure, character * room, string=as_javascript)
    assert error.startswith("LockNotReleased.")
    assert len(cause) <= len(cause.encode()) <= 32_768
    assert raised(failure, character * (room + 1), string=as_javascript)[0] == "LockNotReleased"


def test_a_result_may_have_room_by_characters_and_none_by_bytes(failure: Json) -> None:
    """The control: what `$length` alone would let through."""
    result = "\u20ac" * 32_000
    text = as_javascript({"result": result})
    assert len(text) <= 32_768 < len(text.encode())
    assert raised(failure, result, string=as_javascript)[0] == "LockNotReleased"


def test_a_result_that_would_be_rounded_is_an_error_of_its_own(failure: Json) -> None:
    assert raised(failure, {"n": 123}, string=rounding)[0].startswith("LockNotReleased.")
    assert raised(failure, {"token": FENCING_TOKEN}, string=rounding)[0] == "LockNotReleased"


def test_an_error_of_the_work_by_that_name_is_not_taken_for_the_guards_own(work: Json) -> None:
    assert "LockNotReleased" not in work["Catch"][0]["ErrorEquals"]
    [own] = work["Catch"][0]["ErrorEquals"]
    assert own.startswith("LockNotReleased.lock_Guard_")
