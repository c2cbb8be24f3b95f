"""Reads the state machines of an app at synth: where each guard and each update has ended up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from aws_cdk import Stack, Stage
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.state_json import (
    assigned,
    bodies,
    targets,
    tokens_needed,
    variables,
    variables_as_text,
    variables_of,
)

_UNKNOWN: Final = "0"
"""Stands for what only a deployment knows: good as a number, and as a part of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A place in a state machine in which a variable is assigned.

    Attributes:
        machine: the path of the machine's construct.
        express: whether the workflow is an Express workflow there.
        around: the names of the Parallel and Map states around it.
    """

    machine: str
    express: bool
    around: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableUse:
    """A state that names a variable."""

    machine: str
    state: str
    variable: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A state leads to another, or is a Parallel or Map that begins with it.

    Attributes:
        machine: the path of the machine's construct.
        source: the name of that state; None if the machine begins with the target.
        target: the name of the other.
        by_choice: whether the first one is a Choice, which may lead elsewhere.
    """

    machine: str
    source: str | None
    target: str
    by_choice: bool


@dataclass(frozen=True, slots=True)
class Machines:
    """What is known of all state machines of a stage.

    Attributes:
        placements: where each variable is assigned.
        undefined: the states that read a variable that is assigned nowhere around them.
        as_text: the states that name a variable in the other query language, so that nothing
            evaluates it.
        tokens_needed: the states that read the fencing token in a variable, and need it.
        transitions: which state leads to which.
    """

    placements: dict[str, list[Placement]] = field(default_factory=dict)
    undefined: list[VariableUse] = field(default_factory=list)
    as_text: list[VariableUse] = field(default_factory=list)
    tokens_needed: list[VariableUse] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)

    def add(self, other: Machines) -> None:
        """Adds what is known of other machines."""
        for variable, places in other.placements.items():
            self.placements.setdefault(variable, []).extend(places)
        self.undefined.extend(other.undefined)
        self.as_text.extend(other.as_text)
        self.tokens_needed.extend(other.tokens_needed)
        self.transitions.extend(other.transitions)


def read_machines(stage: Stage) -> Machines:
    """Reads the definitions of all state machines, those of nested stages excepted."""
    machines = Machines()
    for construct in stage.node.find_all():
        if isinstance(construct, sfn.CfnStateMachine):
            _read(machines, construct)
    return machines


def _read(machines: Machines, machine: sfn.CfnStateMachine) -> None:
    resolve = Stack.of(machine).resolve
    text = _text(resolve(machine.definition_string)) or json.dumps(resolve(machine.definition))
    path = machine.node.path.removesuffix("/Resource")
    express = machine.state_machine_type == sfn.StateMachineType.EXPRESS.value
    place = Placement(machine=path, express=express, around=frozenset())
    try:
        definition = json.loads(text)
    except ValueError:
        definition = text
    machines.add(read_definition(definition, place))


def read_definition(definition: Any, place: Placement) -> Machines:  # noqa: ANN401 - any JSON
    """What is known of one machine. Of what is no definition: only the variables that it names."""
    found = Machines()
    try:
        language = definition.get("QueryLanguage", "JSONPath")
        _read_scope(found, definition, place, language=language, inside=None, visible=frozenset())
    except (TypeError, KeyError, AttributeError):
        # Not ours to judge. What it names is at least somewhere.
        named = variables(json.dumps(definition))
        return Machines(placements={variable: [place] for variable in named})
    return found


def _read_scope(
    machines: Machines,
    scope: Mapping[str, Any],
    place: Placement,
    *,
    language: str,
    inside: str | None,
    visible: frozenset[str],
) -> None:
    """Reads states that reach each other by Next, and those inside them."""
    states: Mapping[str, Mapping[str, Any]] = scope["States"]
    here = {name for state in states.values() for name in assigned(state)}
    for variable in sorted(here):
        machines.placements.setdefault(variable, []).append(place)
    visible |= here
    _note_transitions(machines, scope, place.machine, inside=inside)
    for name, state in states.items():
        use = partial(VariableUse, machine=place.machine, state=name)
        undefined = sorted(variables_of(state) - visible)
        machines.undefined.extend(use(variable=variable) for variable in undefined)
        as_text = sorted(variables_as_text(state, language=language) & visible)
        machines.as_text.extend(use(variable=variable) for variable in as_text)
        needed = sorted(tokens_needed(state, language=language))
        machines.tokens_needed.extend(use(variable=variable) for variable in needed)
        for body in bodies(state):
            config = body.get("ProcessorConfig", {})
            is_child = config.get("Mode") == "DISTRIBUTED"
            inner = Placement(
                machine=place.machine,
                express=config.get("ExecutionType") == "EXPRESS" if is_child else place.express,
                around=place.around | {name},
            )
            # The children of a Distributed Map see no variables of the machine around them.
            seen: frozenset[str] = frozenset() if is_child else visible
            _read_scope(machines, body, inner, language=language, inside=name, visible=seen)


def _note_transitions(
    machines: Machines, scope: Mapping[str, Any], machine: str, *, inside: str | None
) -> None:
    steps = [(inside, scope.get("StartAt"), False)]
    steps += [
        (name, target, state.get("Type") == "Choice")
        for name, state in scope["States"].items()
        for target in targets(state)
    ]
    machines.transitions.extend(
        Transition(machine=machine, source=source, target=target, by_choice=by_choice)
        for source, target, by_choice in steps
        if target is not None
    )


def _text(value: object) -> str:
    """A resolved text, with `_UNKNOWN` for what only a deployment knows."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("Fn::Join"), Sequence):
        separator, parts = value["Fn::Join"]
        if not isinstance(parts, str):
            return str(separator).join(_text(part) or _UNKNOWN for part in parts)
    return ""
