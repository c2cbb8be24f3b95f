"""Reads the state machines of a synthesized template, and walks them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonata  # type: ignore[import-untyped]  # ships no types

Json = dict[str, Any]


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

    def assigned(self) -> set[str]:
        """The variables that states of this very scope assign."""
        return {name for state in self.states.values() for name in state.get("Assign", {})}


def machine_of(template: Json, name: str) -> Scope:
    """The one state machine whose logical id begins with a name."""
    [definition] = [
        resource["Properties"]["DefinitionString"]
        for logical_id, resource in template["Resources"].items()
        if resource["Type"] == "AWS::StepFunctions::StateMachine"
        and logical_id.startswith(f"{name}Machine")
    ]
    body = json.loads(flattened(definition))
    return Scope(body["States"], body["StartAt"], language=body.get("QueryLanguage", "JSONPath"))


def flattened(value: Any) -> str:  # noqa: ANN401 - a string or any intrinsic function
    """A string of a template, its references shown as <Name>."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(flattened(part) for part in parts)
    [reference] = value.values()
    return f"<{reference if isinstance(reference, str) else '.'.join(reference)}>"


def successors(state: Json) -> set[str]:
    """Where a state may lead, whatever happens."""
    rules = [*state.get("Choices", ()), *state.get("Catch", ()), state]
    named = {rule["Next"] for rule in rules if "Next" in rule}
    return named | ({state["Default"]} if "Default" in state else set())


def ways_out_unreleased(scope: Scope, start: str, *, release_function: str) -> set[str]:
    """The last states of all paths from `start` that end without a call of release."""
    seen: set[str] = set()
    last: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        state = scope.states[name]
        if name in seen or release_function in json.dumps(state.get("Arguments", {})):
            continue
        seen.add(name)
        if "End" in state or state["Type"] in {"Fail", "Succeed"}:
            last.add(name)
        ahead.extend(successors(state))
    return last


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
) -> Any:  # noqa: ANN401 - whatever the expression gives
    """Evaluates a JSONata value as Step Functions would, at a chosen time."""
    expression = jsonata.Jsonata(value.removeprefix("{%").removesuffix("%}"))
    frame = expression.create_frame()
    frame.bind("states", states or {})
    for name, bound in (variables or {}).items():
        frame.bind(name, bound)
    if now_ms is not None:
        expression.register_lambda("millis", lambda: now_ms)
    return expression.evaluate(None, frame)
