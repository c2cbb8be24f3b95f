"""What a guard, an update and a pace have in common, and checks of arguments.

The checks run in Python before a value reaches CDK: a value such as NaN ends CDK's process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import jsii
from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.interfaces import ResourceEnvironment
from constructs import Construct, IConstruct

from fairlock.errors import InvalidRequest, LockLost


class Fragment(sfn.StateMachineFragment):
    """A part of a workflow, which can be chained like a state."""

    _first: sfn.IChainable
    _last: list[sfn.INextable]

    @property
    @jsii.member(jsii_name="startState")
    def start_state(self) -> sfn.State:
        """Where it begins."""
        return self._first.start_state

    @property
    @jsii.member(jsii_name="endStates")
    def end_states(self) -> list[sfn.INextable]:
        """Where it ends after its work was done."""
        return self._last


def require(field: str, is_right: object, rule: str, value: object) -> None:
    """Raises `InvalidRequest` if an argument breaks its rule."""
    if not is_right:
        raise InvalidRequest(field=field, rule=rule, value=value)


def check_place(scope: object, construct_id: object) -> None:
    """Checks the first two arguments of a construct."""
    is_place = isinstance(scope, Construct)
    require("scope", is_place, "must be the parent construct, such as a Stack", scope)
    is_text = isinstance(construct_id, str) and construct_id
    require("construct_id", is_text, "must be a text that is not empty", construct_id)


def check_flag(field: str, value: object) -> None:
    """Checks that an argument is True or False."""
    require(field, isinstance(value, bool), "must be True or False", value)


def check_key(field: str, key: object) -> None:
    """Checks that an argument is a key of KMS, or None."""
    require(field, key is None or hasattr(key, "key_arn"), "must be an aws_kms.IKey", key)


def check_grantee(grantee: object) -> None:
    """Checks that a policy can name the principal."""
    rule = "must be a principal, such as a function, a state machine or a role of aws_iam"
    require("grantee", hasattr(grantee, "grant_principal"), rule, grantee)


def is_whole(value: object, least: float, most: float) -> bool:
    """Whether it is a whole number in these bounds; True is none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def grant_call(function: lambda_.IFunction, grantee: iam.IGrantable) -> iam.Grant:
    """Lets a principal call a function."""
    check_grantee(grantee)
    return function.grant_invoke(grantee)


def whole_seconds(field: str, duration: object) -> int:
    """The seconds of a Duration, if these are whole, and known at synth."""
    if not isinstance(duration, Duration):
        rule = "must be a Duration, such as Duration.seconds(60)"
        raise InvalidRequest(field=field, rule=rule, value=duration)
    rule = "must be known at synth: a token has no value yet"
    require(field, not duration.is_unresolved(), rule, "a token")
    milliseconds = duration.to_milliseconds(integral=False)
    rule = "must be a whole number of seconds"
    require(field, milliseconds % 1000 == 0, rule, f"{milliseconds:g} ms")
    return int(milliseconds // 1000)


def check_states(field: str, value: object) -> None:
    """Checks that an argument is a state, a chain or a fragment."""
    is_state = isinstance(getattr(value, "start_state", None), sfn.State)
    rule = (
        "must be a state, a chain or a fragment of a state machine, "
        "such as tasks.LambdaInvoke.jsonata(…)"
    )
    require(field, is_state, rule, value)


_KEY_TYPES: Final = frozenset({"S", "N", "B"})


def check_item_key(key: object) -> None:
    """Checks the primary key of an item: DynamoDB's form, no value that would not be evaluated."""
    if not isinstance(key, Mapping) or not key:
        rule = "must be the item's whole primary key, like {'account': {'S': 'anna'}}"
        raise InvalidRequest(field="key", rule=rule, value=key)
    for name, value in key.items():
        if not isinstance(value, Mapping) or len(value) != 1 or set(value) - _KEY_TYPES:
            rule = "must map each attribute to a value in DynamoDB's form, like {'S': 'text'}"
            raise InvalidRequest(field="key", rule=rule, value={name: value})
        [text] = value.values()
        rule = "must have texts that are not empty as its values, also of numbers: {'N': '7'}"
        require("key", isinstance(text, str) and text, rule, {name: value})
        rule = (
            "must not be a path, nor contain one or JSONata within a literal: "
            "write JSONata as a whole, '{% 'customer/' & $states.input.id %}'"
        )
        require("key", is_jsonata(text) or not _looks_evaluated(text), rule, {name: value})


def _looks_evaluated(text: str) -> bool:
    """Whether it is meant to be evaluated, which Step Functions would not do."""
    if Token.is_unresolved(text):
        return sfn.JsonPath.is_encoded_json_path(text)
    return any(part in text for part in ("{%", "%}", "$.", "$states"))


_LONGEST_READABLE: Final = 45
"""Step Functions allows variable and state names of 80 characters. The longest name of a state has
35 besides: a digest, the number of a lock and a purpose, `-12345678 (20): Release after error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVariable:
    """The one variable of a guard, which holds its lock, or of an update.

    Its name comes from the construct's path: it is known before the guard exists, and never shared.
    """

    name: str
    label: str

    @classmethod
    def of(cls, scope: IConstruct, construct_id: str, *, prefix: str = "lock") -> WorkflowVariable:
        """The variable of the construct with this id in this scope."""
        check_place(scope, construct_id)
        digest = hashlib.sha256(f"{scope.node.path}/{construct_id}".encode()).hexdigest()[:8]
        readable = re.sub(r"\W", "_", construct_id, flags=re.ASCII)[:_LONGEST_READABLE]
        label = (
            construct_id
            if len(construct_id) <= _LONGEST_READABLE
            else f"{construct_id[:_LONGEST_READABLE]}-{digest}"
        )
        return cls(name=f"{prefix}_{readable}_{digest}", label=label)

    def of_lock(self, number: int) -> WorkflowVariable:
        """That of one more lock of the same guard."""
        name, _, digest = self.name.rpartition("_")
        return WorkflowVariable(name=f"{name}_{number}_{digest}", label=f"{self.label} ({number})")

    def field(self, field: str) -> str:
        """A field of the variable: the same text in a JSONPath state and within JSONata."""
        return f"${self.name}.{field}"

    def jsonata(self, field: str) -> str:
        """A field of the variable as a whole JSONata value."""
        return jsonata(self.field(field))

    def merged(self, fields: str) -> str:
        """The variable with other fields, which are written as JSONata has them in an object."""
        return f"$merge([${self.name}, {{{fields}}}])"

    def state_name(self, purpose: str) -> str:
        """The name of a state of the construct, as unique in a machine as the construct's id."""
        return f"{self.label}: {purpose}"


def jsonata(expression: str) -> str:
    """Marks a string as JSONata."""
    return f"{{% {expression} %}}"


def is_jsonata(value: object) -> bool:
    """Whether Step Functions would evaluate a value of a JSONata state."""
    is_marked = isinstance(value, str) and value.startswith("{%") and value.endswith("%}")
    return is_marked and len(value) >= len("{%%}")  # type: ignore[arg-type]  # a string by now


UNCHANGED: Final = jsonata("$states.input")
ERROR_OUTPUT: Final = jsonata("$states.errorOutput")
ANY_ERROR: Final = "States.ALL"
TIMEOUT: Final = "States.Timeout"
EVALUATION_ERROR: Final = "States.QueryEvaluationError"
"""JSONata that failed in any field of a state, `Assign` and `Output` included. Task, Map and
Parallel states may catch and repeat it (developer guide, "Transforming data with JSONata")."""
NOT_WORTH_REPEATING: Final = (InvalidRequest.__name__, LockLost.__name__)

_REPEATS: Final = 8
_REPEATS_IN_EXPRESS: Final = 3
"""An Express workflow ends after 5 minutes, and with it the result of the work."""
_REPEATS_WHEN_THROTTLED: Final = 100
_LONGEST_PAUSE_SECONDS: Final = 20


def repeat_unknown(call: sfn.TaskStateBase, *, express: bool) -> None:
    """Repeats a call whose outcome is unknown: every call of the service may be made twice."""
    never_repeat(call, NOT_WORTH_REPEATING)
    if not express:
        repeat(call, "Lambda.TooManyRequestsException", most=_REPEATS_WHEN_THROTTLED)
    repeat(call, ANY_ERROR, most=_REPEATS_IN_EXPRESS if express else _REPEATS)


def never_repeat(call: sfn.TaskStateBase, errors: Sequence[str]) -> None:
    """Excepts errors from later, wider rules: the first rule that matches an error counts."""
    call.add_retry(errors=list(errors), max_attempts=0)


def repeat(
    call: sfn.TaskStateBase,
    error: str,
    *,
    most: int = _REPEATS,
    longest_pause_seconds: int = _LONGEST_PAUSE_SECONDS,
) -> None:
    """Repeats after pauses that double, each shortened at random."""
    call.add_retry(
        errors=[error],
        interval=Duration.seconds(1),
        backoff_rate=2,
        max_delay=Duration.seconds(min(longest_pause_seconds, _LONGEST_PAUSE_SECONDS)),
        max_attempts=most,
        jitter_strategy=sfn.JitterType.FULL,
    )


def first_difference(here: Stack, there: ResourceEnvironment) -> tuple[str, str, str] | None:
    """`account` or `region`, that of here, and another one of there; None if nothing differs."""
    for kind, own, other in (
        ("account", here.account, there.account),
        ("region", here.region, there.region),
    ):
        is_known = not Token.is_unresolved(own) and not Token.is_unresolved(other)
        if is_known and own != other:
            return kind, own, other
    return None
