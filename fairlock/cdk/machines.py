"""The state machines of an app, read and checked when the app is synthesized.

Guards and updates are fragments: only the finished machine tells where each has ended up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import jsii
from aws_cdk import Stack, Stage
from aws_cdk import aws_stepfunctions as sfn
from constructs import IConstruct, IValidation

from fairlock.cdk.fragments import is_jsonata
from fairlock.errors import InvalidRequest

Json = Mapping[str, Any]

_VARIABLE: Final = re.compile(r"\$((?:lock|item)_\w+_[0-9a-f]{8})\b")
"""A name that `WorkflowVariable` makes."""
_FENCING_TOKEN: Final = re.compile(_VARIABLE.pattern + r"\.fencing_token\b")
_NULL_SAFE_MARKS: Final = ("?", "$exists(")
"""What JSONata has that may do without the value."""
_PROCESSORS: Final = ("ItemProcessor", "Iterator")
_ENDS_OF_PATHS: Final = (".$", "Path")


def bodies(state: Json) -> Iterator[Json]:
    """The branches of a Parallel, or what a Map runs for each item."""
    yield from state.get("Branches", ())
    for name in _PROCESSORS:
        if name in state:
            yield state[name]


def without_bodies(state: Json) -> Json:
    """The state's own fields, without its comment, in which it may name anything."""
    left_out = {"Branches", *_PROCESSORS, "Comment"}
    return {key: value for key, value in state.items() if key not in left_out}


def targets(state: Json) -> Iterator[str]:
    """The states to which it may lead."""
    for rule in (state, *_rules(state)):
        for name in ("Next", "Default"):
            if name in rule:
                yield rule[name]


def assigned(state: Json) -> Iterator[str]:
    """The variables that it assigns."""
    for rule in (state, *_rules(state)):
        for name in rule.get("Assign", {}):
            yield name.removesuffix(".$")


def variables(text: str) -> set[str]:
    """The variables of guards and updates that a text names."""
    return set(_VARIABLE.findall(text))


def variables_as_text(state: Json, *, language: str) -> set[str]:
    """The variables that it names where Step Functions evaluates nothing, and hands on the text."""
    in_jsonata = state.get("QueryLanguage", language) == "JSONata"
    return {
        variable
        for name, text in _texts(without_bodies(state), "")
        if is_jsonata(text) != in_jsonata
        or not (in_jsonata or name == "Variable" or name.endswith(_ENDS_OF_PATHS))
        for variable in variables(text)
    }


def tokens_needed(state: Json, *, language: str) -> set[str]:
    """The variables whose fencing token it reads, wherever it cannot do without one.

    JSONata may ask first whether there is one (`$exists`, `? :`), and so may a Choice in JSONPath
    (`IsPresent`): none of them counts then.
    """
    in_jsonata = state.get("QueryLanguage", language) == "JSONata"
    if not in_jsonata and '"IsPresent"' in json.dumps(state.get("Choices", ())):
        return set()
    return {
        variable
        for _, text in _texts(without_bodies(state), "")
        if not (in_jsonata and any(sign in text for sign in _NULL_SAFE_MARKS))
        for variable in _FENCING_TOKEN.findall(text)
    }


def _rules(state: Json) -> Sequence[Json]:
    return [*state.get("Catch", ()), *state.get("Choices", ())]


def _texts(value: object, field: str) -> Iterator[tuple[str, str]]:
    """Each text in a field, with the name of the innermost field around it."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name != "Comment":
                yield from _texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, field)


_UNKNOWN: Final = "0"
"""Stands for what only a deployment knows: good as a number, and as a part of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A place in a state machine in which a variable is assigned, with the states around it."""

    express: bool
    around: frozenset[str] = frozenset()
    in_map: bool = False


@dataclass(frozen=True, slots=True)
class VariableUse:
    """A state that names a variable."""

    state: str
    variable: str


@dataclass(frozen=True, slots=True)
class Transition:
    """A state leads to another, or begins with it as a Parallel or Map; None begins a machine."""

    source: str | None
    target: str
    by_choice: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of one state machine.

    Attributes:
        placements: where each variable is assigned.
        undefined: the states that read a variable that is assigned nowhere around them.
        as_text: the states that name a variable in a language in which nothing evaluates it.
        tokens_needed: the states that read the fencing token in a variable, and need it.
    """

    path: str
    placements: dict[str, list[Placement]] = field(default_factory=dict)
    undefined: list[VariableUse] = field(default_factory=list)
    as_text: list[VariableUse] = field(default_factory=list)
    tokens_needed: list[VariableUse] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)


def _read(machine: sfn.CfnStateMachine) -> Machine:
    resolve = Stack.of(machine).resolve
    text = _text(resolve(machine.definition_string)) or json.dumps(resolve(machine.definition))
    path = machine.node.path.removesuffix("/Resource")
    express = machine.state_machine_type == sfn.StateMachineType.EXPRESS.value
    try:
        definition = json.loads(text)
    except ValueError:
        definition = text
    return read_definition(definition, path=path, express=express)


def read_definition(definition: Any, *, path: str = "", express: bool = False) -> Machine:  # noqa: ANN401 - any JSON
    """What is known of one machine. Of what is no definition: only the variables that it names."""
    found, place = Machine(path), Placement(express=express)
    try:
        language = definition.get("QueryLanguage", "JSONPath")
        _read_scope(found, definition, place, language=language, inside=None, visible=frozenset())
    except (TypeError, KeyError, AttributeError):
        # Not ours to judge. What it names is at least somewhere.
        named = variables(json.dumps(definition))
        return Machine(path, placements={variable: [place] for variable in named})
    return found


def _read_scope(
    machine: Machine,
    scope: Mapping[str, Any],
    place: Placement,
    *,
    language: str,
    inside: str | None,
    visible: frozenset[str],
) -> None:
    states: Mapping[str, Mapping[str, Any]] = scope["States"]
    here = {name for state in states.values() for name in assigned(state)}
    for variable in sorted(here):
        machine.placements.setdefault(variable, []).append(place)
    visible |= here
    if (first := scope.get("StartAt")) is not None:
        machine.transitions.append(Transition(inside, first, by_choice=False))
    machine.transitions.extend(
        Transition(name, target, by_choice=state.get("Type") == "Choice")
        for name, state in states.items()
        for target in targets(state)
        if target is not None
    )
    for name, state in states.items():
        for uses, used in (
            (machine.undefined, variables(json.dumps(without_bodies(state))) - visible),
            (machine.as_text, variables_as_text(state, language=language) & visible),
            (machine.tokens_needed, tokens_needed(state, language=language)),
        ):
            uses.extend(VariableUse(name, variable) for variable in sorted(used))
        for body in bodies(state):
            config = body.get("ProcessorConfig", {})
            is_child = config.get("Mode") == "DISTRIBUTED"
            inner = Placement(
                express=config.get("ExecutionType") == "EXPRESS" if is_child else place.express,
                around=place.around | {name},
                in_map=place.in_map or "Branches" not in state,
            )
            # The children of a Distributed Map see no variables of the machine around them.
            seen: frozenset[str] = frozenset() if is_child else visible
            _read_scope(machine, body, inner, language=language, inside=name, visible=seen)


def _text(value: object) -> str:
    """A resolved text, with `_UNKNOWN` for what only a deployment knows."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("Fn::Join"), Sequence):
        separator, parts = value["Fn::Join"]
        if not isinstance(parts, str):
            return str(separator).join(_text(part) or _UNKNOWN for part in parts)
    return ""


@dataclass(frozen=True, kw_only=True, eq=False)
class PartOfMachine:
    """A guard or an update, which ends up in a state machine."""

    construct: IConstruct
    kind: str
    variable: str

    def faults(
        self,
        machines: Sequence[Machine],
        parts: Sequence[PartOfMachine],  # noqa: ARG002 - of a guard
    ) -> Iterator[InvalidRequest]:
        """The rules that it breaks where it ended up, beside the other parts of the app."""
        if not any(self.variable in machine.placements for machine in machines):
            yield InvalidRequest(field=self.kind, rule=_IN_NO_MACHINE, value="none")


_CHECKS: Final[WeakKeyDictionary[Stage, MachineChecks]] = WeakKeyDictionary()


@jsii.implements(IValidation)
class MachineChecks:
    """The checks of one stage, which reads its definitions once, however many guards there are."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._parts: list[PartOfMachine] = []

    @staticmethod
    def add(part: PartOfMachine) -> None:
        """Has a part checked when the stage around it is synthesized."""
        stage = Stage.of(part.construct)
        if stage is None:
            return  # a tree that no one can synthesize
        if stage not in _CHECKS:
            _CHECKS[stage] = MachineChecks(stage)
            stage.node.add_validation(_CHECKS[stage])
        _CHECKS[stage]._parts.append(part)  # noqa: SLF001 - its own

    def validate(self) -> list[str]:
        """The faults, as CDK lists them when it refuses to synthesize."""
        machines = [
            _read(construct)
            for construct in self._stage.node.find_all()
            if isinstance(construct, sfn.CfnStateMachine)
        ]
        faults = [
            f"{part.construct.node.path}: {fault}"
            for part in self._parts
            for fault in part.faults(machines, self._parts)
        ]
        faults += [
            f"{machine}: {InvalidRequest(field='state', rule=_TOO_LONG, value=name)}"
            for machine, name in sorted(
                {
                    (machine.path, step.target)
                    for machine in machines
                    for step in machine.transitions
                }
            )
            if len(name) > _LONGEST_STATE_NAME
        ]
        wrong = [
            (_UNDEFINED, machine.path, use) for machine in machines for use in machine.undefined
        ]
        wrong += [(_AS_TEXT, machine.path, use) for machine in machines for use in machine.as_text]
        for rule, path, use in wrong:
            said, variable = rule.format(repr(use.state)), f"${use.variable}"
            fault = InvalidRequest(field="variable", rule=said, value=variable)
            faults.append(f"{path}: {fault}")
        return [*dict.fromkeys(faults)]  # a guard of several locks is a part for each of them


_LONGEST_STATE_NAME: Final = 80
"""That Step Functions takes. CDK puts a prefix before the names that a guard has made short."""

_TOO_LONG: Final = (
    f"must have at most {_LONGEST_STATE_NAME} characters: give the guard a shorter "
    "construct_id, or prefix_states and to_single_state a shorter prefix"
)
_UNDEFINED: Final = (
    "must be that of a guard around the state {}: "
    "fencing_token_of and owner_id_of take the guard's own scope and construct_id"
)
_AS_TEXT: Final = (
    "must be read in the query language of the state {}, which would hand on this "
    "text instead of the value: in JSONata fencing_token_of(…), in JSONPath "
    "JsonPath.number_at(LockGuard.fencing_token_path_of(…))"
)


_IN_NO_MACHINE: Final = (
    "is in no state machine: pass it to DefinitionBody.from_chainable(…), or chain it to a "
    "state of a machine"
)


def reachable(
    steps: Sequence[Transition], begin: Iterable[str | None], *, stop: str
) -> set[str | None]:
    """The states that are reached from those in `begin`, without leaving `stop`; None begins."""
    targets: dict[str | None, list[str]] = {}
    for step in steps:
        targets.setdefault(step.source, []).append(step.target)
    found: set[str | None] = set()
    left = list(begin)
    while left:
        state = left.pop()
        if state not in found:
            found.add(state)
            left += () if state == stop else targets.get(state, ())
    return found
