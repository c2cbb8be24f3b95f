"""Arguments that CDK itself would not refuse, or not by name: types, durations, states.

The checks run in Python before a value reaches CDK: a value such as NaN ends CDK's process.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.errors import InvalidRequest


def check_place(scope: object, construct_id: object) -> None:
    """Checks the first two arguments of a construct.

    Raises:
        InvalidRequest: one of them is something else.
    """
    if not isinstance(scope, Construct):
        rule = "must be the parent construct, such as a Stack"
        raise InvalidRequest(field="scope", rule=rule, value=scope)
    if not isinstance(construct_id, str) or not construct_id:
        rule = "must be a text that is not empty"
        raise InvalidRequest(field="construct_id", rule=rule, value=construct_id)


def whole_seconds(field: str, duration: object) -> int:
    """The seconds of a Duration.

    Raises:
        InvalidRequest: it is no Duration, not known at synth, or no whole number of seconds.
    """
    if not isinstance(duration, Duration):
        rule = "must be a Duration, such as Duration.seconds(60)"
        raise InvalidRequest(field=field, rule=rule, value=duration)
    if duration.is_unresolved():
        rule = "must be known at synth: a token has no value yet"
        raise InvalidRequest(field=field, rule=rule, value="a token")
    milliseconds = duration.to_milliseconds(integral=False)
    if milliseconds % 1000:
        rule = "must be a whole number of seconds"
        raise InvalidRequest(field=field, rule=rule, value=f"{milliseconds:g} ms")
    return int(milliseconds // 1000)


def check_states(field: str, value: object) -> None:
    """Checks that an argument is a state, or something that begins with one.

    Raises:
        InvalidRequest: it is neither a state nor a chain nor a fragment.
    """
    if not isinstance(getattr(value, "start_state", None), sfn.State):
        rule = (
            "must be a state, a chain or a fragment of a state machine, "
            "such as tasks.LambdaInvoke.jsonata(…)"
        )
        raise InvalidRequest(field=field, rule=rule, value=value)
