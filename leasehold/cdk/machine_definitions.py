"""Reads the state machines of an app at synth: where each guard and each update has ended up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aws_cdk import Stack, Stage
from aws_cdk import aws_stepfunctions as sfn

_VARIABLE: Final = re.compile(r"\$((?:lock|item)_\w+_[0-9a-f]{8})\b")
"""A name that `WorkflowVariable` makes."""
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
class UndefinedVariable:
    """A state that reads a variable that is assigned nowhere around it."""

    machine: str
    state: str
    variable: str


@dataclass(frozen=True, slots=True)
class Machines:
    """What is known of all state machines of a stage."""

    placements: dict[str, list[Placement]] = field(default_factory=dict)
    undefined: list[UndefinedVariable] = field(default_factory=list)


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
    try:
        definition = json.loads(text)
        states = definition["States"]
    except (ValueError, TypeError, KeyError):
        # Not ours to judge. What it names is at least somewhere.
        for variable in set(_VARIABLE.findall(text)):
            place = Placement(machine=path, express=express, around=frozenset())
            machines.placements.setdefault(variable, []).append(place)
        return
    place = Placement(machine=path, express=express, around=frozenset())
    _read_scope(machines, states, place, visible=frozenset())


def _read_scope(
    machines: Machines, states: Mapping[str, Any], place: Placement, *, visible: frozenset[str]
) -> None:
    """Reads states that reach each other by Next, and those inside them."""
    assigned = {name for state in states.values() for name in _assigned(state)}
    for variable in sorted(assigned):
        machines.placements.setdefault(variable, []).append(place)
    visible |= assigned
    for name, state in states.items():
        own = {key: value for key, value in state.items() if key not in _BODIES}
        for variable in sorted(set(_VARIABLE.findall(json.dumps(own))) - visible):
            undefined = UndefinedVariable(machine=place.machine, state=name, variable=variable)
            machines.undefined.append(undefined)
        for body in _bodies(state):
            config = body.get("ProcessorConfig", {})
            is_child = config.get("Mode") == "DISTRIBUTED"
            inner = Placement(
                machine=place.machine,
                express=config.get("ExecutionType") == "EXPRESS" if is_child else place.express,
                around=place.around | {name},
            )
            # The children of a Distributed Map see no variables of the machine around them.
            seen: frozenset[str] = frozenset() if is_child else visible
            _read_scope(machines, body["States"], inner, visible=seen)


_BODIES: Final = ("Branches", "ItemProcessor", "Iterator")


def _bodies(state: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from state.get("Branches", ())
    for name in ("ItemProcessor", "Iterator"):
        if name in state:
            yield state[name]


def _assigned(state: Mapping[str, Any]) -> Iterator[str]:
    rules: Sequence[Mapping[str, Any]] = [
        state,
        *state.get("Catch", ()),
        *state.get("Choices", ()),
    ]
    for rule in rules:
        for name in rule.get("Assign", {}):
            yield name.removesuffix(".$")


def _text(value: object) -> str:
    """A resolved text, with `_UNKNOWN` for what only a deployment knows."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("Fn::Join"), Sequence):
        separator, parts = value["Fn::Join"]
        if not isinstance(parts, str):
            return str(separator).join(_text(part) or _UNKNOWN for part in parts)
    return ""
