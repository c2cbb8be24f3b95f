"""What workflows of several suites are made of."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

LOCK: Final = "{% $states.input.lock %}"
SECONDS: Final = "{% $states.input.seconds %}"


def stay(scope: Construct, name: str = "Stay") -> sfn.Chain:
    """Works for `seconds`, and returns from when to when; fails at the end if asked to `raise`.

    A Wait state: the cold start of a function would make the tests slow and the times inexact.
    """
    part = Construct(scope, name)
    began = "{% $merge([$states.input, {'began_ms': $millis()}]) %}"
    span = "{% {'began_ms': $states.input.began_ms, 'ended_ms': $millis()} %}"
    enter = sfn.Pass.jsonata(part, "Begin", state_name=f"{name}: Begin", outputs=began)
    wait = sfn.Wait.jsonata(
        part,
        "Wait",
        state_name=name,
        time=sfn.WaitTime.seconds(SECONDS),
    )
    ends = sfn.Choice.jsonata(part, "How?", state_name=f"{name}: How?")
    fail = sfn.Fail.jsonata(
        part,
        "Fail",
        state_name=f"{name}: Fail",
        error="{% $states.input.raise %}",
        cause="{% $string($millis()) %}",
    )
    leave = sfn.Pass.jsonata(part, "End", state_name=f"{name}: End", outputs=span)
    ends.when(sfn.Condition.jsonata("{% $exists($states.input.raise) %}"), fail)
    ends.otherwise(leave)
    return sfn.Chain.custom(enter, [leave], enter.next(wait).next(ends))


def decide(scope: Construct, work: sfn.TaskStateBase) -> sfn.Choice:
    """Ends by Succeed, by Fail, or as the work does, whose error "Known" is handled."""
    work.add_catch(sfn.Pass.jsonata(scope, "Handled", outputs="handled"), errors=["Known"])
    which = sfn.Choice.jsonata(scope, "Which?")
    which.when(_is("succeed"), sfn.Succeed.jsonata(scope, "Succeed", outputs="succeeded"))
    which.when(_is("fail"), sfn.Fail.jsonata(scope, "Fail", error="Refused", cause="by choice"))
    which.otherwise(work)
    return which


def runtime_error(scope: Construct) -> sfn.Chain:
    """A JSONPath that leads nowhere is States.Runtime, which no Catch matches."""
    wait = sfn.Wait(scope, "Stay", time=sfn.WaitTime.seconds_path("$.seconds"))
    return wait.next(sfn.Pass(scope, "Nowhere", input_path="$.nowhere"))


def once_each(scope: Construct, guarded: sfn.IChainable) -> sfn.Map:
    """Three iterations at once, all with the machine's own input."""
    items = sfn.ProvideItems.jsonata("{% [$states.input, $states.input, $states.input] %}")
    each = sfn.Map.jsonata(scope, "Each", items=items)
    return each.item_processor(guarded)


def _is(way: str) -> sfn.Condition:
    given = "$states.input.way"
    return sfn.Condition.jsonata(f"{{% $exists({given}) and {given} = '{way}' %}}")
