"""Corrections branch_failure and history."""

from collections.abc import Callable
from typing import Any

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]


def branch(**states: object) -> dict[str, Any]:
    return {"StartAt": next(iter(states)), "States": states}


FAILS = branch(F={"Type": "Fail", "Error": "Broken", "Cause": "on purpose"})
WAITS = branch(W={"Type": "Wait", "Seconds": 2, "End": True})


def parallel(*branches: dict[str, Any], **fields: object) -> dict[str, Any]:
    return branch(P={"Type": "Parallel", "Branches": list(branches), "End": True, **fields})


def failing_map(seconds: int) -> dict[str, Any]:
    choice = {"Variable": "$", "NumericEquals": 1, "Next": "F"}
    iteration = {
        "StartAt": "C",
        "States": {
            "C": {"Type": "Choice", "Choices": [choice], "Default": "W"},
            "W": {"Type": "Wait", "Seconds": seconds, "End": True},
            "F": {"Type": "Fail", "Error": "Broken", "Cause": "on purpose"},
        },
    }
    return branch(M={"Type": "Map", "ItemProcessor": iteration, "End": True})


def waited(bench: Workbench, execution: str) -> list[str]:
    """The Wait states that came to their end."""
    return [
        event["stateExitedEventDetails"]["name"]
        for event in bench.events(execution)
        if event["type"] == "WaitStateExited"
    ]


def test_a_failing_branch_stops_its_siblings(corrected: Workbench) -> None:
    ended = corrected.run(parallel(WAITS, FAILS))
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "Broken", "on purpose")
    assert waited(corrected, ended.arn) == []


def test_a_failing_iteration_stops_the_others(corrected: Workbench) -> None:
    ended = corrected.run(failing_map(2), [0, 1, 2])
    assert (ended.status, ended.error) == ("FAILED", "Broken")
    assert waited(corrected, ended.arn) == []


def test_control_siblings_and_iterations_run_to_their_end(left_out: WithoutCorrection) -> None:
    bench = left_out("branch_failure")
    executions = bench.start(parallel(WAITS, FAILS)), bench.start(failing_map(2), [0, 1, 2])
    ended = [bench.wait(execution) for execution in executions]
    assert all(each.seconds >= 2 for each in ended)
    assert [waited(bench, each.arn) for each in ended] == [["W"], ["W", "W"]]


def test_what_surrounds_a_failed_parallel_goes_on(corrected: Workbench) -> None:
    definition = parallel(WAITS, FAILS, Catch=[{"ErrorEquals": ["Broken"], "Next": "After"}])
    definition["States"]["After"] = {"Type": "Wait", "Seconds": 1, "Next": "Done"}
    definition["States"]["Done"] = {"Type": "Pass", "Result": "went on", "End": True}
    ended = corrected.run(definition)
    assert (ended.status, ended.output) == ("SUCCEEDED", "went on")
    assert waited(corrected, ended.arn) == ["After"]  # and not the sibling


def test_an_inner_failure_caught_inside_leaves_the_outer_branches_alone(
    corrected: Workbench,
) -> None:
    inner = parallel(WAITS, FAILS, Catch=[{"ErrorEquals": ["States.ALL"], "Next": "Caught"}])
    inner["States"]["Caught"] = {"Type": "Pass", "Result": "caught", "End": True}
    sibling = branch(
        W={"Type": "Wait", "Seconds": 1, "Next": "Q"}, Q={"Type": "Pass", "Result": 1, "End": True}
    )
    assert corrected.run(parallel(inner, sibling)).output == ["caught", 1]


def state_seen_after_a_sibling_moved_on(bench: Workbench) -> str:
    """A state is retried a second after its sibling entered another state: whose name is it?"""
    asks = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {
            "FunctionName": bench.function(
                "def handler(event, context):\n"
                "    if event['retries'] == 0: raise RuntimeError('again')\n"
                "    return event['state']\n"
            ),
            "Payload": {"state.$": "$$.State.Name", "retries.$": "$$.State.RetryCount"},
        },
        "Retry": [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 2}],
        "ResultSelector": {"state.$": "$.Payload"},
        "End": True,
    }
    sibling = branch(Moves={"Type": "Wait", "Seconds": 1, "End": True})
    ended = bench.run(parallel(branch(Asks=asks), sibling))
    assert ended.status == "SUCCEEDED", ended
    return str(ended.output[0]["state"])


def test_each_branch_sees_its_own_state(corrected: Workbench) -> None:
    assert state_seen_after_a_sibling_moved_on(corrected) == "Asks"


def test_control_branches_see_the_state_that_was_entered_last(left_out: WithoutCorrection) -> None:
    # `variables` gives each branch a context object of its own as well.
    bench = left_out("branch_failure", "variables")
    assert state_seen_after_a_sibling_moved_on(bench) == "Moves"


def entered(bench: Workbench) -> list[str]:
    ended = bench.run(parallel(branch(Inside={"Type": "Pass", "End": True})))
    events = bench.events(ended.arn)
    return [
        event["stateEnteredEventDetails"]["name"]
        for event in events
        if event["type"].endswith("StateEntered")
    ]


def test_the_history_shows_the_states_of_branches(corrected: Workbench) -> None:
    assert entered(corrected) == ["P", "Inside"]


def test_control_the_history_lacks_the_states_of_branches(left_out: WithoutCorrection) -> None:
    assert entered(left_out("history")) == ["P"]


def test_the_history_of_a_failing_branch_is_in_order(corrected: Workbench) -> None:
    events = corrected.events(corrected.run(parallel(FAILS)).arn)
    assert [(event["id"], event["previousEventId"], event["type"]) for event in events[1:]] == [
        (2, 1, "ParallelStateEntered"),
        (3, 2, "ParallelStateStarted"),
        (4, 3, "FailStateEntered"),
        (5, 4, "ParallelStateFailed"),
        (6, 5, "ExecutionFailed"),
    ]
