"""`only_newest` of a guard: where a superseded one goes, what it asks, and where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_stepfunctions as sfn

from fairlock import InvalidRequest
from fairlock.cdk import LockGuard, Waiting
from tests.unit.cdk.asl import Scope, evaluate, ways_out_unreleased
from tests.unit.cdk.guard_factory import GuardFactory
from tests.unit.cdk.machine_cases import Cases
from tests.unit.cdk.test_guard_skip import RELEASE, definition_of

Json = dict[str, Any]
WAYS: dict[str, Json] = {
    "queue": {"waiting": Waiting.queue()},
    "polling": {"waiting": Waiting.poll()},
    "skipping": {"max_wait": Duration.seconds(0)},
    "Express": {"waiting": None, "express": True},
}
every_way = pytest.mark.parametrize("way", WAYS)
SUPERSEDED = {"acquired": False, "reason": "SUPERSEDED", "newest": 9}


@pytest.fixture(scope="module")
def newest(guards: GuardFactory) -> dict[str, Scope]:
    return {
        way: definition_of(guards.guard(only_newest="{% $states.input.build %}", **props))
        for way, props in WAYS.items()
    }


@every_way
def test_each_answer_has_its_way(newest: dict[str, Scope], way: str) -> None:
    machine = newest[way]
    choice = machine.states["Guard: Acquired?"]
    [variable] = machine.assigned()

    def way_of(answer: Json) -> str:
        values = {variable: {**answer, "waiting_since_ms": 0}}
        for rule in choice["Choices"]:
            if evaluate(rule["Condition"], variables=values) is True:
                return str(rule["Next"])
        return str(choice["Default"])

    assert way_of({"acquired": True}) == "Guard: Work"
    assert way_of(SUPERSEDED) == "Guard: Superseded"


@every_way
def test_a_superseded_guard_leaves_the_queue_and_then_fails(
    newest: dict[str, Scope], way: str
) -> None:
    machine = newest[way]
    leaving = machine.states["Guard: Superseded"]
    assert leaving["Arguments"]["Payload"]["queue"] is True
    failed = machine.states[leaving["Next"]]
    assert (failed["Type"], failed["Error"]) == ("Fail", "Superseded")
    assert ways_out_unreleased(machine, "Guard: Acquire", release_function=RELEASE) == set()
    [variable] = machine.assigned()
    lock = {"lock_name": "deploy", "only_newest": 7, "newest": 9}
    cause = evaluate(failed["Cause"], variables={variable: lock})
    assert cause == "lock deploy: version 7 is superseded, 9 was granted the lock"


@every_way
def test_the_version_is_evaluated_once_and_sent_with_each_call(
    newest: dict[str, Scope], way: str
) -> None:
    machine = newest[way]
    [variable] = machine.assigned()
    [lock] = machine.states["Guard: Enter"]["Assign"].values()
    assert lock["only_newest"] == "{% $states.input.build %}"
    sent = machine.states["Guard: Acquire"]["Arguments"]["Payload"]["only_newest"]
    assert sent == f"{{% ${variable}.only_newest %}}"


def test_by_time_the_version_is_when_the_guard_was_entered(guards: GuardFactory) -> None:
    [lock] = definition_of(guards.guard(only_newest=True)).states["Guard: Enter"]["Assign"].values()
    assert lock["only_newest"] == "{% $millis() %}"


def test_a_number_is_sent_as_it_is_also_by_heartbeats(guards: GuardFactory) -> None:
    guard = guards.guard(only_newest=0, waiting=Waiting.queue(), keep_alive=Duration.seconds(20))
    scope = definition_of(guard)
    assert scope.states["Guard: Acquire"]["Arguments"]["Payload"]["only_newest"] == 0
    assert '"only_newest": 0' in str(scope.states["Guard: Work"]).replace("'", '"')


def test_the_queue_takes_a_superseded_answer_and_only_one_of_its_own(
    newest: dict[str, Scope],
) -> None:
    machine = newest["queue"]
    [variable] = machine.assigned()
    [assign] = machine.states["Guard: Acquire"]["Assign"].values()
    own = {
        "lock_name": "a",
        "owner_id": "o",
        "waiting_since_ms": 1,
        "restarts": 0,
        "only_newest": 7,
    }

    def taken(answer: Json) -> Any:  # noqa: ANN401 - what JSONata gives
        return evaluate(assign, variables={variable: own}, states={"result": answer})

    answer = {**SUPERSEDED, "lock_name": "a", "owner_id": "o"}
    assert taken(answer)["reason"] == "SUPERSEDED"
    with pytest.raises(Exception, match="another lock or another owner"):
        taken({**answer, "owner_id": "forged"})
    with pytest.raises(Exception, match="another lock or another owner"):
        taken({**answer, "reason": "HELD"})


def test_a_guard_without_it_is_as_it_was(guards: GuardFactory) -> None:
    for props in WAYS.values():
        text = str(definition_of(guards.guard(**props)).states)
        assert "newest" not in text.lower()
        assert "SUPERSEDED" not in text
    queued = definition_of(guards.guard(waiting=Waiting.queue()))
    assert "Guard: Acquired?" not in queued.states


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", None, "{% %}", 2**53])
def test_a_version_that_is_none_is_refused(guards: GuardFactory, wrong: Any) -> None:  # noqa: ANN401 - whatever is wrong
    with pytest.raises(InvalidRequest, match="only_newest: must be"):
        guards.guard(only_newest=wrong)


def test_a_reader_has_no_version(guards: GuardFactory) -> None:
    with pytest.raises(InvalidRequest, match="only_newest: must be left out with shared"):
        guards.guard(only_newest=7, shared=True)


def test_on_superseded_goes_with_only_newest(stack: Stack, guards: GuardFactory) -> None:
    elsewhere = sfn.Pass(stack, "Superseded elsewhere")
    with pytest.raises(InvalidRequest, match="on_superseded: goes with only_newest only"):
        guards.guard(on_superseded=elsewhere)
    guard = guards.guard(only_newest=True, on_superseded=elsewhere)
    machine = definition_of(guard)
    assert machine.states["Guard: Superseded"]["Next"] == "Superseded elsewhere"
    assert "Guard: Newer granted" not in machine.states


def faults_of(make: Callable[[Any], None]) -> list[str]:
    """What CDK lists when it validates a stack with the machine of one case."""
    app = App()
    make(Cases(app, "Machines").case("Case"))
    return [fault for construct in app.node.find_all() for fault in construct.node.validate()]


@pytest.mark.parametrize("kind", [None, sfn.StateMachineType.STANDARD])
def test_in_a_map_a_literal_name_is_refused(kind: sfn.StateMachineType | None) -> None:
    def inside(case: Any, **props: Any) -> None:  # noqa: ANN401 - a case, and a guard's arguments
        guard = case.guard(only_newest=True, **props)
        case.machine(case.map("Each", guard, kind) if kind else case.map("Each", guard))

    [fault] = faults_of(lambda case: inside(case, lock_name="deploy"))
    assert "only_newest: must be left out in a Map whose iterations want the same lock" in fault
    assert faults_of(lambda case: inside(case, lock_name="{% $states.input.service %}")) == []


def test_around_a_map_it_is_allowed() -> None:
    def outside(case: Any) -> None:  # noqa: ANN401 - a case
        work = case.map("Each", case.step("Work"))
        case.machine(case.guard(task=work, lock_name="deploy", only_newest=True))

    assert faults_of(outside) == []


def test_on_superseded_must_not_need_the_fencing_token() -> None:
    def needs(case: Any) -> None:  # noqa: ANN401 - a case
        token = LockGuard.fencing_token_of(case, "Guard")
        tell = case.step("Tell", outputs=token)
        case.machine(case.guard(only_newest=True, on_superseded=tell))

    [fault] = faults_of(needs)
    assert "on_superseded: must not lead to a state that needs this guard's fencing token" in fault
