"""Reads templates: resources of the service, items as Java spells them, findings of cfn-lint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonata  # type: ignore[import-untyped]  # ships no types
from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from jsonata.jexception import JException  # type: ignore[import-untyped]  # same

Json = dict[str, Any]


def template_of(stack: Stack) -> Json:
    return dict(Template.from_stack(stack).to_json())


def resources(template: Mapping[str, Any], kind: str, prefix: str = "") -> dict[str, Json]:
    """The resources of a kind whose logical ids begin so."""
    return {
        name: each
        for name, each in template.get("Resources", {}).items()
        if each["Type"] == kind and name.startswith(prefix)
    }


def properties(template: Mapping[str, Any], kind: str, prefix: str = "") -> list[Json]:
    return [each.get("Properties", {}) for each in resources(template, kind, prefix).values()]


def statements(template: Mapping[str, Any], prefix: str = "") -> list[Json]:
    """What the policies of roles allow whose logical ids begin so."""
    policies = properties(template, "AWS::IAM::Policy", prefix)
    return [each for policy in policies for each in policy["PolicyDocument"]["Statement"]]


def actions(template: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = [each["Action"] for each in statements(template, prefix)]
    return [action for each in found for action in listed(each)]


def listed(value: Any) -> list[Any]:  # noqa: ANN401 - one thing, or several
    return value if isinstance(value, list) else [value]


def made(template: Mapping[str, Any]) -> dict[str, Json]:
    """What a service makes, by its name in the construct; see `short`."""
    return {short(name): short(each) for name, each in template["Resources"].items()}


def short(value: Any) -> Any:  # noqa: ANN401 - a part of a template
    """With references by the names of constructs, without that of the service: <Table.Arn>."""
    if isinstance(value, list):
        return [short(each) for each in value]
    if isinstance(value, dict) and value.keys() & {"Ref", "Fn::GetAtt", "Fn::Join"}:
        value = flattened(value)
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    pattern = r"\b(?:Locks)?([A-Za-z]\w*?)[0-9A-F]{8}\b"
    return re.sub(pattern, r"\1", value) if isinstance(value, str) else value


# How Step Functions spells the types of an item: an independent translation.

SPELLED = {"BOOL": "Bool", "NULL": "Nul", "SS": "Ss", "NS": "Ns", "BS": "Bs"}


def as_java(item: Json) -> Json:
    """Of the types only, not of attributes of the same name."""
    return {name: _value_as_java(value) for name, value in item.items()}


def _value_as_java(value: Json) -> Json:
    [(kind, inner)] = value.items()
    if kind == "L":
        return {"L": [_value_as_java(element) for element in inner]}
    if kind == "M":
        return {"M": as_java(inner)}
    return {SPELLED.get(kind, kind): inner}


# What cfn-lint finds in a template.

SECONDS = re.compile(r'("(?:Timeout|Heartbeat)?Seconds"):"{%[^"]*%}"')
"""A number of seconds that a state machine computes."""


def lint(template: Json) -> list[str]:
    """What cfn-lint finds; the dependencies that CDK spells out twice are not of interest."""
    from cfnlint import api  # type: ignore[import-untyped]  # noqa: PLC0415 - ships no types; a second to import
    from cfnlint.config import ManualArgs  # type: ignore[import-untyped]  # noqa: PLC0415 - same

    matches = api.lint(
        json.dumps(template),
        regions=["us-east-1"],
        config=ManualArgs(ignore_checks=["W3005"]),
    )
    return [f"{match.rule.id} in {match.path[1]}: {match.message}" for match in matches]


def durable_function(stack: Stack, name: str = "Billing", **props: Any) -> lambda_.Function:  # noqa: ANN401 - a function's
    return lambda_.Function(
        stack,
        name,
        **props,
        code=lambda_.Code.from_inline("def handler(event, context): pass"),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        durable_config=lambda_.DurableConfig(execution_timeout=Duration.days(7)),
    )


PARTITION, REGION, ACCOUNT = "aws-us-gov", "ap-southeast-2", "123456789012"
"""As long as they get, though this partition has no such region."""
FORMS: Final = {
    "AWS::Partition": PARTITION,
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "x" * 128,
}


def resolved(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A part of a template as CloudFormation sends it, each name as long as it gets."""
    if isinstance(value, list):
        return [resolved(each) for each in value]
    if not isinstance(value, dict):
        return value
    if list(value) == ["Ref"]:
        return FORMS.get(value["Ref"], "r" * 64)
    if list(value) == ["Fn::Join"]:
        delimiter, parts = value["Fn::Join"]
        return delimiter.join(resolved(parts))
    if list(value) == ["Fn::GetAtt"]:
        return f"arn:{PARTITION}:lambda:{REGION}:{ACCOUNT}:function:".ljust(123, "f")
    imported = list(value) in (["Fn::ImportValue"], ["Fn::Select"])
    return "i" * 128 if imported else {key: resolved(each) for key, each in value.items()}


# Reads the state machines of a synthesized template, and walks them.

EvaluationError = JException
"""What an expression raises that Step Functions would end with States.QueryEvaluationError."""

DEEPEST_ON_AWS = 100
"""Measured by others: between 99 and 101, see https://github.com/floci-io/floci/issues/2737."""


@dataclass(frozen=True)
class Scope:
    """States that reach each other by Next: the machine itself, a branch, or a Map's processor."""

    states: Mapping[str, Json]
    start_at: str
    outer: tuple[Scope, ...] = ()
    language: str = "JSONPath"

    def inner(self) -> Iterator[Scope]:
        for state in self.states.values():
            bodies = [*state.get("Branches", ()), state.get("ItemProcessor")]
            for body in filter(None, bodies):
                yield Scope(body["States"], body["StartAt"], (*self.outer, self), self.language)

    def all_scopes(self) -> Iterator[Scope]:
        yield self
        for scope in self.inner():
            yield from scope.all_scopes()

    def all_states(self) -> Iterator[tuple[str, Json]]:
        for scope in self.all_scopes():
            yield from scope.states.items()

    def holding(self, name: str) -> Scope:
        """The scope in which a state is."""
        return next(scope for scope in self.all_scopes() if name in scope.states)

    def requests(self) -> list[Json]:
        """What each call says that takes or renews a lock."""
        payloads = [each.get("Arguments", {}).get("Payload", {}) for _, each in self.all_states()]
        return [payload for payload in payloads if "lease_seconds" in payload]

    def assigned(self) -> set[str]:
        """The variables that states of this very scope assign."""
        return {name for state in self.states.values() for name in state.get("Assign", {})}

    @property
    def variable(self) -> str:
        """The one of these, if there is one guard or update."""
        [name] = self.assigned()
        return name

    def chosen(self, state: str, **given: Any) -> str:  # noqa: ANN401 - for `evaluate`
        """The state after a Choice."""
        choice = self.states[state]
        ways = (way["Next"] for way in choice["Choices"] if evaluate(way["Condition"], **given))
        return str(next(ways, choice["Default"]))


def machine_of(template: Json, name: str) -> Scope:
    """The one state machine whose logical id begins with a name."""
    [found] = properties(template, "AWS::StepFunctions::StateMachine", f"{name}Machine")
    body = json.loads(flattened(found["DefinitionString"]))
    return Scope(body["States"], body["StartAt"], language=body.get("QueryLanguage", "JSONPath"))


def definition_of(guard: sfn.StateMachineFragment) -> Scope:
    """The states of a guard that is in no machine."""
    graph = sfn.StateGraph(guard.start_state, "a guard by itself").to_graph_json()
    stack = Stack.of(guard)
    body = json.loads(flattened(stack.resolve(stack.to_json_string(graph))))
    return Scope(body["States"], body["StartAt"])


def flattened(value: Any) -> str:  # noqa: ANN401 - a string or any intrinsic function
    """A string of a template, its references shown as <Name>."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(flattened(part) for part in parts)
    [reference] = value.values()
    return f"<{reference if isinstance(reference, str) else '.'.join(map(str, reference))}>"


def successors(state: Json) -> set[str]:
    """Where a state may lead, whatever happens."""
    rules = [*state.get("Choices", ()), *state.get("Catch", ()), state]
    named = {rule["Next"] for rule in rules if "Next" in rule}
    return named | ({state["Default"]} if "Default" in state else set())


RELEASE = ":function:release"
"""How the ARN of the function ends that releases, wherever a state calls it."""


def ways_out_unreleased(scope: Scope, start: str) -> set[str]:
    """The last states of all paths from `start` that end without a call of release.

    A Parallel that ends well has released if one of its branches has on all its paths. An error
    that is raised after that call only is one of the paths that have.
    """
    return {
        name
        for name in _entered_unreleased(scope, start)
        if "End" in scope.states[name] or scope.states[name]["Type"] in {"Fail", "Succeed"}
        if not _releasing_branches(scope.states[name])
    }


def _entered_unreleased(scope: Scope, start: str) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        state = scope.states[name]
        if name in seen or RELEASE in json.dumps(state.get("Arguments", {})):
            continue
        seen.add(name)
        releasing = _releasing_branches(state)
        late = {
            branch.states[name]["Error"]
            for branch in releasing
            for name in branch.states.keys() - _entered_unreleased(branch, branch.start_at)
            if branch.states[name]["Type"] == "Fail"
        }
        ahead.extend(_followed(state, late) if releasing else successors(state))
    return seen


def _releasing_branches(state: Json) -> list[Scope]:
    branches = [Scope(body["States"], body["StartAt"]) for body in state.get("Branches", ())]
    return [branch for branch in branches if not ways_out_unreleased(branch, branch.start_at)]


def _followed(state: Json, late_errors: set[str]) -> set[str]:
    """Where the errors lead that a releasing Parallel may fail with before it has released."""
    late = str(late_errors)
    return {
        rule["Next"]
        for rule in state.get("Catch", ())
        if not all(f"'{name}'" in late for name in rule["ErrorEquals"])
    }


def repeated(*errors: str, most: int, longest: int, rate: float = 2) -> Json:
    """The rule by which a state repeats what ended with an error."""
    pauses = {"IntervalSeconds": 1, "BackoffRate": rate, "MaxDelaySeconds": longest}
    return {"ErrorEquals": [*errors], **pauses, "MaxAttempts": most, "JitterStrategy": "FULL"}


def handling(state: Json, error: str) -> tuple[int, str | None]:
    """How often an error is repeated, and what comes then: by the rule that matches first."""
    retrier = next(filter(_matches(error), state.get("Retry", ())), {"MaxAttempts": 0})
    catcher = next(filter(_matches(error), state.get("Catch", ())), {"Next": None})
    return retrier["MaxAttempts"], catcher["Next"]


def _matches(error: str) -> Callable[[Json], bool]:
    return lambda rule: not {error, "States.ALL"}.isdisjoint(rule["ErrorEquals"])


def happy_path(scope: Scope) -> list[str]:
    """The states that are entered when every lock is free and nothing fails."""
    path: list[str] = []
    name: str | None = scope.start_at
    while name is not None:
        path.append(name)
        state = scope.states[name]
        for branch in state.get("Branches", ()):
            path += happy_path(Scope(branch["States"], branch["StartAt"]))
        name = state["Choices"][0]["Next"] if "Choices" in state else state.get("Next")
    return path


def evaluate(
    value: str,
    *,
    states: Json | None = None,
    variables: Json | None = None,
    now_ms: int | None = None,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    deepest: int = DEEPEST_ON_AWS,
) -> Any:  # noqa: ANN401 - whatever the expression gives
    """Evaluates a JSONata value as Step Functions would, at a chosen time.

    `functions` replaces some of JSONata's own.

    Raises:
        TooDeepError: the evaluation is deeper than `deepest`.
    """
    expression = jsonata.Jsonata(value.removeprefix("{%").removesuffix("%}"))
    frame = expression.create_frame()
    _bound(frame, deepest)
    frame.bind("states", states or {})
    for name, bound in (variables or {}).items():
        frame.bind(name, bound)
    expression.register_lambda("parse", json.loads)  # Step Functions' own
    for name, function in (functions or {}).items():
        expression.register_lambda(name, function)
    if now_ms is not None:
        expression.register_lambda("millis", lambda: now_ms)
    return expression.evaluate(None, frame)


class TooDeepError(Exception):
    """An evaluation that Step Functions would end."""


def _bound(frame: Any, deepest: int) -> None:  # noqa: ANN401 - jsonata's own, untyped
    """Counts every step; jsonata's own bound leaves out those of an object's second field on."""
    depth = 0

    def enter(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > deepest:
            raise TooDeepError

    def leave(*_: object) -> None:
        nonlocal depth
        depth -= 1

    frame.set_evaluate_entry_callback(enter)
    frame.set_evaluate_exit_callback(leave)
