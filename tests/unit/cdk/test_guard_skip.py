"""The definition of a guard that skips a busy lock: `max_wait` is zero."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import LockGuard, Waiting
from tests.unit.cdk.asl import Scope, evaluate, happy_path, successors, ways_out_unreleased
from tests.unit.cdk.guard_factory import GuardFactory

Json = dict[str, Any]
RELEASE = "function:release"
WAYS: dict[str, Json] = {
    "queue": {"waiting": Waiting.queue()},
    "polling": {"waiting": Waiting.poll()},
    "Express": {"waiting": None, "express": True},
}
every_way = pytest.mark.parametrize("way", WAYS)


def definition_of(guard: LockGuard) -> Scope:
    graph = sfn.StateGraph(guard.start_state, "a guard by itself").to_graph_json()
    return Scope(graph["States"], graph["StartAt"])


@pytest.fixture(scope="module")
def skipping(guards: GuardFactory) -> dict[str, Scope]:
    skip = Duration.seconds(0)
    return {way: definition_of(guards.guard(max_wait=skip, **props)) for way, props in WAYS.items()}


@every_way
def test_it_asks_once_whatever_the_way_to_wait(skipping: dict[str, Scope], way: str) -> None:
    machine = skipping[way]
    acquire = machine.states["Guard: Acquire"]
    assert acquire["Resource"].endswith(":states:::lambda:invoke")
    assert "task_token" not in acquire["Arguments"]["Payload"]
    before = [
        name for name, state in machine.states.items() if "Guard: Acquire" in successors(state)
    ]
    assert before == ["Guard: Enter"]
    assert "Wait" not in {state["Type"] for state in machine.states.values()}


@every_way
def test_a_grant_leads_to_the_work_and_any_refusal_to_giving_up(
    skipping: dict[str, Scope], way: str
) -> None:
    choice = skipping[way].states["Guard: Acquired?"]
    [rule] = choice["Choices"]
    [variable] = skipping[way].assigned()

    def is_granted(answer: Json) -> object:
        return evaluate(rule["Condition"], variables={variable: answer})

    assert is_granted({"acquired": True}) is True
    assert is_granted({"acquired": False, "reason": "HELD"}) is False
    assert (rule["Next"], choice["Default"]) == ("Guard: Work", "Guard: Give up")


@every_way
def test_every_path_from_acquire_ends_in_a_release(skipping: dict[str, Scope], way: str) -> None:
    """Also after a refusal: a call that was repeated may have left one under way."""
    machine = skipping[way]
    assert ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE) == set()
    machine.states["Guard: Acquired?"]["Default"] = "Guard: Timed out"
    escaped = ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE)
    assert escaped == {"Guard: Timed out"}
    machine.states["Guard: Acquired?"]["Default"] = "Guard: Give up"


def test_uncontended_it_costs_as_much_as_a_polling_guard(skipping: dict[str, Scope]) -> None:
    path = ["Guard: Enter", "Guard: Acquire", "Guard: Acquired?", "Work", "Guard: Release"]
    path.insert(-2, "Guard: Work")  # the branch of a work that is no bare task
    assert happy_path(skipping["queue"]) == path


def test_a_busy_lock_leads_to_where_a_wait_that_is_over_leads(
    stack: Stack, guards: GuardFactory
) -> None:
    elsewhere = sfn.Pass(stack, "Skipped")
    guard = guards.guard(max_wait=Duration.seconds(0), on_timeout=elsewhere)
    machine = definition_of(guard)
    assert machine.states["Guard: Give up"]["Next"] == "Skipped"
    assert "Guard: Timed out" not in machine.states
