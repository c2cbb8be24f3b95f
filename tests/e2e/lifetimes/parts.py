"""What the workflows of this suite are made of."""

from __future__ import annotations

from typing import Final

from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

LOCK: Final = "{% $states.input.lock %}"
SECONDS: Final = "{% $states.input.seconds %}"


def stay(scope: Construct, name: str = "Stay") -> sfn.Chain:
    """Is inside for `seconds`, and tells from when to when; fails at the end if asked to.

    No function, whose cold start would blur the spans, and of which one process each is needed.
    """
    began = "{% $merge([$states.input, {'began_ms': $millis()}]) %}"
    span = "{% {'began_ms': $states.input.began_ms, 'ended_ms': $millis()} %}"
    begin = sfn.Pass.jsonata(scope, f"{name}Begin", state_name=f"{name}: Begin", outputs=began)
    wait = sfn.Wait.jsonata(
        scope, f"{name}Wait", state_name=name, time=sfn.WaitTime.seconds(SECONDS)
    )
    how = sfn.Choice.jsonata(scope, f"{name}How", state_name=f"{name}: How?")
    end = sfn.Pass.jsonata(scope, f"{name}End", state_name=f"{name}: End", outputs=span)
    fail = sfn.Fail.jsonata(
        scope,
        f"{name}Fail",
        state_name=f"{name}: Fail",
        error="{% $states.input.raise %}",
        cause="on purpose",
    )
    how.when(sfn.Condition.jsonata("{% $exists($states.input.raise) %}"), fail)
    how.otherwise(end)
    return sfn.Chain.custom(begin, [end], begin.next(wait).next(how))


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
