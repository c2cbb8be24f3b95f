"""`LockGuard(lock_name=[…])`: the order of its locks, and where its states lead."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import pytest
from aws_cdk import Duration

from fairlock.cdk import Waiting
from fairlock.cdk.guard import guard_arguments
from fairlock.errors import InvalidRequest
from fairlock.wire.rules import LOCK_NAME, in_lock_order
from tests.unit.cdk.conftest import Asl
from tests.unit.cdk.guard_forms import Cases
from tests.unit.cdk.template import EvaluationError, Json, evaluate, happy_path, ways_out_unreleased

WAYS = (Waiting.poll(), Waiting.queue())
KEPT = Duration.seconds(5)
FULL_WIDTH_TILDE, SMILE = "\uff5e", "😀"
"""UTF-16 has the second one before the first."""


def test_names_are_short_enough_for_any_construct_id(guards: Cases) -> None:
    names = [f"lock {number}" for number in range(10)]
    for length in (45, 46, 80, 200):
        scope = guards.definition(name="G" * length, lock_name=names, keep_alive=KEPT)
        states = [*scope.all_states()]
        variables = [name for _, state in states for name in state.get("Assign", {})]
        assert max(map(len, [*variables, *dict(states)])) <= 80


@pytest.mark.parametrize("waiting", WAYS)
def test_it_takes_the_locks_by_the_bytes_of_their_names_and_releases_them_in_reverse(
    guards: Cases, waiting: Waiting
) -> None:
    names = [SMILE, "b", FULL_WIDTH_TILDE, "B"]
    scope = guards.definition(lock_name=names, waiting=waiting)
    entered = [name for name in happy_path(scope) if name.endswith(": Enter")]
    locks = [lock for name in entered for lock in scope.states[name]["Assign"].values()]
    found = [lock["lock_name"] for lock in locks if "owner_id" in lock]
    assert found == ["B", "b", FULL_WIDTH_TILDE, SMILE]
    path = [name for name in happy_path(scope) if "Acquired?" not in name]
    assert path == [
        *("Guard: Enter", "Guard: Acquire"),
        *(f"Guard ({n}): {purpose}" for n in (2, 3, 4) for purpose in ("Enter", "Acquire")),
        *("Guard: Work", "Work"),
        *("Guard (4): Release", "Guard (3): Release", "Guard (2): Release", "Guard: Release"),
    ]


def test_every_way_out_releases_all_locks_that_were_taken(guards: Cases) -> None:
    ways = (("Give up", "Guard: Timed out"), ("Release after error", "Guard: Failed"))
    for waiting, keep_alive in product(WAYS, (None, KEPT)):
        names = ["a", "b", "c"]
        scope = guards.definition(lock_name=names, waiting=waiting, keep_alive=keep_alive)
        assert not ways_out_unreleased(scope, scope.start_at)
        for purpose, ends in ways:
            chain = [f"Guard (3): {purpose}", f"Guard (2): {purpose}", f"Guard: {purpose}", ends]
            for before, after in pairwise(chain):
                assert scope.states[before]["Next"] == after
                assert [rule["Next"] for rule in scope.states[before]["Catch"]] == [after]


def test_one_wait_is_for_all_locks_and_its_end_names_the_busy_one(guards: Cases) -> None:
    states = guards.definition(lock_name=["a", "b"], waiting=Waiting.queue()).states
    assert states["Guard (2): Time left?"]["Choices"][0]["Next"] == "Guard (2): Give up"
    entered = states["Guard (2): Enter"]["Assign"]
    [lock] = [lock for lock in entered.values() if "owner_id" in lock]
    [first] = [name for name in entered if name.endswith("_entered")]
    variable = first.removesuffix("_entered")
    assert lock["waiting_since_ms"] == f"{{% ${variable}.waiting_since_ms %}}"
    cause = evaluate(
        states["Guard: Timed out"]["Cause"],
        variables={variable: {"lock_name": "a", "waiting_since_ms": 0}, first: entered[first]},
        now_ms=1_800_000,
    )
    assert cause.startswith("lock b was not granted within max_wait of 1800 s (waited 1800 s)")
    assert cause.endswith("; none of the locks is held")


def tried(states: Mapping[str, Json], name: str, ends: str) -> list[Json]:
    """The states that are entered from a release on if each call fails."""
    entered: list[Json] = []
    while states[name]["Type"] == "Task":
        entered.append(states[name])
        [name] = {rule["Next"] for rule in states[name]["Catch"]}
    assert name == ends
    return entered


@pytest.mark.parametrize("waiting", WAYS)
def test_a_failed_release_leaves_out_no_other_one(guards: Cases, waiting: Waiting) -> None:
    scope = guards.definition(lock_name=["a", "b", "c"], waiting=waiting, keep_alive=KEPT)
    [work] = [state for state in scope.states.values() if state["Type"] == "Parallel"]
    [caught] = [each for each in work["Catch"] if "LockNotReleased" in each["ErrorEquals"][0]]
    body = next(scope.inner()).states
    inside = tried(body, "Guard (3): Release", "Guard: Lock not released")
    behind = tried(scope.states, caught["Next"], "Guard: Not released")
    for state in behind:
        assert state["Output"] == "{% $states.input %}"
        assert {rule["Next"] for rule in state["Catch"]} == {state["Next"]}
    acquires = [state for name, state in scope.states.items() if name.endswith(": Acquire")]
    assert len(acquires) == 3
    of_acquires, of_releases = (
        {each["Arguments"]["Payload"]["lock_name"] for each in calls}
        for calls in (acquires, [*inside, *behind])
    )
    assert of_acquires == of_releases


@cache
def order_of(guards: Cases, count: int) -> str:
    """How the guard's first state orders so many names: whatever they are, the text is the same."""
    asked = [f"{{% $states.input.n{number} %}}" for number in range(count)]
    scope = guards.definition(lock_name=asked)
    assert scope.start_at == "Guard: Order"
    [expression] = scope.states["Guard: Order"]["Assign"].values()
    return str(expression)


def ordered(guards: Cases, names: Sequence[str | None]) -> Any:  # noqa: ANN401 - what JSONata gives
    """The names in order, as the guard's first state evaluates them."""
    expression = order_of(guards, len(names))
    given = {f"n{number}": name for number, name in enumerate(names) if name is not None}
    return evaluate(expression, states={"input": given})


def some_name(seeded: random.Random) -> str:
    of_one_byte, of_two = "aAzZ0/ '\"\\{}$~", "éßÿœ\u07ff"
    alphabets = (of_one_byte, of_two, "€漢\uff5e\ufffd\ud7ff", "😀𐀀\U0001f1e6\U000e0100")
    letters = [seeded.choice(seeded.choice(alphabets)) for _ in range(seeded.randint(1, 4))]
    return unicodedata.normalize("NFC", "".join(letters))


def test_names_known_at_run_time_come_in_the_order_of_python(guards: Cases) -> None:
    seeded = random.Random(14)  # noqa: S311 - the same names each time
    assert ordered(guards, [SMILE, "b", FULL_WIDTH_TILDE]) == ["b", FULL_WIDTH_TILDE, SMILE]
    for _ in range(40):
        drawn = {some_name(seeded) for _ in range(5)}
        names = [name for name in drawn if LOCK_NAME.allows(name)]
        if len(names) > 1:
            assert ordered(guards, names) == in_lock_order(names), names


def test_by_utf_16_they_do_not(guards: Cases, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: what JSONata compares if it is given the names themselves."""
    by_units = "function($name) { $utf16($name) }"
    monkeypatch.setattr(guard_arguments, "_KEY", by_units)
    asked = ["{% $states.input.a %}", "{% $states.input.b %}"]
    [expression] = guards.definition(lock_name=asked).states["Guard: Order"]["Assign"].values()
    names = {"a": SMILE, "b": FULL_WIDTH_TILDE}
    functions = {"utf16": lambda name: name.encode("utf-16-be").hex()}
    found = evaluate(expression, states={"input": names}, functions=functions)
    assert found == [SMILE, FULL_WIDTH_TILDE] != in_lock_order(names.values())


def test_a_name_twice_or_missing_ends_the_workflow_before_any_grant(guards: Cases) -> None:
    wrong: list[tuple[list[Any], str]] = [
        (["b", "a", "b"], "lock_name: b must come once: correct one of its expressions"),
        (["a", None], r"lock_name: \$states\.input\.n1 must give a value: it is missing"),
        (["a", ["b", "c"]], "lock_name: each expression must give one name, not a list"),
        (["a", ["a", "b"]], "lock_name: a must come once"),
        (["a", []], "lock_name: each expression must give one name, not a list"),
    ]
    for names, told in wrong:
        with pytest.raises(EvaluationError, match=told):
            ordered(guards, names)


def test_the_fencing_tokens_are_an_object_by_lock_name(guards: Cases) -> None:
    guard = guards.guard(lock_name=["a", "b"])
    variables = [name[1:] for name in guard.fencing_tokens.split() if name.endswith("lock_name:")]
    known = [name.split(".")[0].lstrip("{$") for name in variables]
    values = {name: {"lock_name": "ab"[n], "fencing_token": n} for n, name in enumerate(known)}
    assert evaluate(guard.fencing_tokens, variables=values) == {"a": 0, "b": 1}
    for one in ("fencing_token", "fencing_token_path", "owner_id"):
        with pytest.raises(InvalidRequest, match="each has its own; use fencing_tokens"):
            getattr(guard, one)


def test_a_list_of_one_is_a_plain_guard(guards: Cases) -> None:
    plain, listed = (guards.definition(lock_name=name) for name in ("x", ["x"]))
    assert [*plain.states] == [*listed.states]
    assert not [name for name in plain.assigned() if name.endswith("_entered")]


def test_the_command_takes_several_lock_names(asl: Asl) -> None:
    names = ("$.one", "{% $states.input.other %}", "third")
    words = [word for name in names for word in ("--lock-name", name)]
    status, output, _ = asl('{"Type": "Pass"}', *words, "--shared")
    assert status == 0
    made = json.loads(output)
    assert made["StartAt"] == "Guard: Order"
    [expression] = made["States"]["Guard: Order"]["Assign"].values()
    given = {"input": {"one": "b", "other": "a"}}
    assert evaluate(expression, states=given) == ["a", "b", "third"]
    assert "fencing tokens: {% {$lock_" in made["Comment"]
    assert '"shared": true' in output
