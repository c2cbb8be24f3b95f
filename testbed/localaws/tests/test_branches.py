"""Corrections branch_failure and history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.localaws.workbench import Ended, Workbench

WithoutCorrection = Callable[..., Workbench]


def branch(**states: object) -> dict[str, Any]:
    return {"StartAt": next(iter(states)), "States": states}


FAILS = branch(F={"Type": "Fail", "Error": "Broken", "Cause": "on purpose"})


def waiting(seconds: int) -> dict[str, Any]:
    return branch(W={"Type": "Wait", "Seconds": seconds, "End": True})


WAITS = waiting(25)
"""Until long after its sibling has failed."""


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
    ended = corrected.run(failing_map(25), [0, 1, 2])
    assert (ended.status, ended.error) == ("FAILED", "Broken")
    assert waited(corrected, ended.arn) == []


def test_control_siblings_and_iterations_run_to_their_end(left_out: WithoutCorrection) -> None:
    bench = left_out("branch_failure")
    executions = bench.start(parallel(waiting(2), FAILS)), bench.start(failing_map(2), [0, 1, 2])
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


# Correction variables.


LOCK = {"token": 7, "name": "customer/1", "tags": ["a", "b"], "free": False, "seconds": 0}


def pass_state(following: str | None, **fields: object) -> dict[str, Any]:
    return {"Type": "Pass", **fields, **({"Next": following} if following else {"End": True})}


def with_lock(**states: object) -> dict[str, Any]:
    """A JSONPath machine whose first state assigns `$lock`."""
    first = pass_state(next(iter(states)), Result=LOCK, ResultPath=None, Assign={"lock.$": "$"})
    return {"StartAt": "Assign", "States": {"Assign": first, **states}}


def read(bench: Workbench, expression: str) -> Ended:
    return bench.run(
        with_lock(Read=pass_state(None, Parameters={"x.$": expression})), {"in": "put"}
    )


def test_a_jsonpath_state_reads_what_a_jsonpath_state_assigned(corrected: Workbench) -> None:
    assert read(corrected, "$lock.token").output == {"x": 7}
    assert read(corrected, "$lock").output == {"x": LOCK}
    assert read(corrected, "$lock.tags[1]").output == {"x": "b"}
    assert read(corrected, "States.Format('{}@{}', $lock.token, $.in)").output == {"x": "7@put"}


def test_control_a_jsonpath_state_reads_null(left_out: WithoutCorrection) -> None:
    bench = left_out("variables", "missing_paths")
    assert read(bench, "$lock.token").output == {"x": None}


def test_the_input_is_untouched_by_assigning(corrected: Workbench) -> None:
    assert corrected.run(with_lock(Read=pass_state(None)), {"in": "put"}).output == {"in": "put"}


def test_an_unknown_variable_fails_the_execution(corrected: Workbench) -> None:
    ended = read(corrected, "$other.token")
    assert (ended.status, ended.error) == ("FAILED", "States.Runtime")


def test_paths_of_all_kinds_may_be_variables(corrected: Workbench) -> None:
    choice = {"Variable": "$lock.token", "NumericEquals": 7, "Next": "Wait"}
    ended = corrected.run(
        with_lock(
            Choice={"Type": "Choice", "Choices": [choice], "Default": "Wrong"},
            Wrong={"Type": "Fail", "Error": "Wrong", "Cause": ""},
            Wait={"Type": "Wait", "SecondsPath": "$lock.seconds", "Next": "Select"},
            Select=pass_state("Map", InputPath="$lock"),
            Map={
                "Type": "Map",
                "ItemsPath": "$lock.tags",
                "ItemSelector": {"tag.$": "$$.Map.Item.Value", "token.$": "$lock.token"},
                "ItemProcessor": {"StartAt": "I", "States": {"I": pass_state(None)}},
                "ResultSelector": {"all.$": "$", "name.$": "$lock.name"},
                "End": True,
            },
        )
    )
    items = [{"tag": "a", "token": 7}, {"tag": "b", "token": 7}]
    assert ended.output == {"all": items, "name": "customer/1"}


def test_a_jsonpath_state_reads_what_a_jsonata_state_assigned(corrected: Workbench) -> None:
    first = pass_state("Read", QueryLanguage="JSONata", Assign={"v": "{% {'n': 1 + 1} %}"})
    second = pass_state(None, Parameters={"x.$": "$v.n"})
    assert corrected.run({"StartAt": "A", "States": {"A": first, "Read": second}}).output == {
        "x": 2
    }


def test_a_jsonata_state_reads_what_a_jsonpath_state_assigned(corrected: Workbench) -> None:
    second = pass_state(None, QueryLanguage="JSONata", Output="{% $lock.token + 1 %}")
    assert corrected.run(with_lock(Read=second)).output == 8


def test_a_task_assigns_its_raw_result(corrected: Workbench) -> None:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": corrected.function("def handler(e, c): return {'t': 9}")},
        "ResultSelector": {"nothing": True},
        "Assign": {"t.$": "$.Payload.t", "code.$": "$.StatusCode"},
        "Next": "Read",
    }
    last = pass_state(None, Parameters={"t.$": "$t", "code.$": "$code", "input.$": "$"})
    ended = corrected.run({"StartAt": "T", "States": {"T": task, "Read": last}})
    assert ended.output == {"t": 9, "code": 200, "input": {"nothing": True}}


def test_a_catcher_assigns_the_error(corrected: Workbench) -> None:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    catcher = {"ErrorEquals": ["E"], "Assign": {"why.$": "$.Cause"}, "Next": "Read"}
    around = {"Type": "Parallel", "Branches": [inside], "Catch": [catcher], "End": True}
    last = pass_state(None, Parameters={"why.$": "$why"})
    assert corrected.run({"StartAt": "P", "States": {"P": around, "Read": last}}).output == {
        "why": "c"
    }


def test_a_jsonata_catcher_of_a_jsonpath_machine_assigns_the_error(corrected: Workbench) -> None:
    inside = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    catcher = {
        "ErrorEquals": ["E"],
        "Assign": {"why": "{% $states.errorOutput.Cause %}"},
        "Output": "{% $states.input %}",
        "Next": "Read",
    }
    around = {
        "Type": "Parallel",
        "QueryLanguage": "JSONata",
        "Branches": [inside],
        "Catch": [catcher],
        "End": True,
    }
    last = pass_state(None, Parameters={"why.$": "$why", "in.$": "$"})
    ended = corrected.run({"StartAt": "P", "States": {"P": around, "Read": last}}, [1])
    assert ended.output == {"why": "c", "in": [1]}


def test_choice_and_wait_assign_the_effective_input(corrected: Workbench) -> None:
    rule = {"Variable": "$.n", "NumericEquals": 1, "Assign": {"c.$": "$.n"}, "Next": "W"}
    states = {
        "C": {"Type": "Choice", "InputPath": "$.a", "Choices": [rule]},
        "W": {"Type": "Wait", "Seconds": 0, "Assign": {"w.$": "$.n"}, "Next": "Read"},
        "Read": pass_state(None, Parameters={"c.$": "$c", "w.$": "$w"}),
    }
    assert corrected.run({"StartAt": "C", "States": states}, {"a": {"n": 1}}).output == {
        "c": 1,
        "w": 1,
    }


SWAP = {
    "QueryLanguage": "JSONata",
    "StartAt": "A",
    "States": {
        "A": pass_state("B", Assign={"x": 1, "y": 2}),
        "B": pass_state("C", Assign={"x": "{% $y %}", "y": "{% $x %}"}),
        "C": pass_state(None, Output=["{% $x %}", "{% $y %}"]),
    },
}


def test_all_values_of_an_assign_are_computed_before_any_is_set(corrected: Workbench) -> None:
    assert corrected.run(SWAP).output == [2, 1]


def test_control_later_values_see_earlier_ones(left_out: WithoutCorrection) -> None:
    assert left_out("variables").run(SWAP).output == [2, 2]


def scopes(inner: dict[str, Any]) -> dict[str, Any]:
    """`outer` is assigned, then a branch assigns `inner`, then both are asked for."""
    return {
        "QueryLanguage": "JSONata",
        "StartAt": "A",
        "States": {
            "A": pass_state("P", Assign={"outer": 1}),
            "P": {
                "Type": "Parallel",
                "Branches": [
                    {
                        "StartAt": "I",
                        "States": {
                            "I": pass_state("J", Assign=inner),
                            "J": pass_state(None, Output="{% $outer %}"),
                        },
                    }
                ],
                "Next": "Z",
            },
            "Z": pass_state(None, Output=["{% $states.input[0] %}", "{% $exists($inner) %}"]),
        },
    }


def test_a_branch_reads_outer_variables_and_keeps_its_own(corrected: Workbench) -> None:
    assert corrected.run(scopes({"inner": 2})).output == [1, False]


def test_control_a_branch_s_variables_leak(left_out: WithoutCorrection) -> None:
    assert left_out("variables").run(scopes({"inner": 2})).output == [1, True]


def test_a_branch_may_not_assign_an_outer_variable(corrected: Workbench) -> None:
    ended = corrected.run(scopes({"outer": 2}))
    assert (ended.status, ended.error) == ("FAILED", "States.Runtime")


def test_each_iteration_of_a_map_has_variables_of_its_own(corrected: Workbench) -> None:
    iteration = {
        "StartAt": "I",
        "States": {
            "I": pass_state("W", Assign={"mine": "{% $states.input %}"}),
            "W": {"Type": "Wait", "Seconds": 1, "Next": "J"},
            "J": pass_state(None, Output="{% $mine * $factor %}"),
        },
    }
    definition = {
        "QueryLanguage": "JSONata",
        "StartAt": "A",
        "States": {
            "A": pass_state("M", Assign={"factor": 10}),
            "M": {"Type": "Map", "ItemProcessor": iteration, "End": True},
        },
    }
    assert corrected.run(definition, [1, 2, 3]).output == [10, 20, 30]
