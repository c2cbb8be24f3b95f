"""Rules that need whole state machines: they are checked when the app is synthesized."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import jsii
from aws_cdk import Stage
from constructs import IConstruct, IValidation

from fairlock.cdk.machine_definitions import Machines, VariableUse, read_machines
from fairlock.errors import InvalidRequest

_CHECKS: Final[WeakKeyDictionary[Stage, MachineChecks]] = WeakKeyDictionary()


class PartOfMachine(Protocol):
    """A construct that ends up in a state machine."""

    @property
    def path(self) -> str:
        """Its path in the app."""
        ...

    def faults(
        self, machines: Machines, parts: Sequence[PartOfMachine]
    ) -> Iterator[InvalidRequest]:
        """The rules that it breaks where it ended up, beside the other parts of the app."""
        ...


@jsii.implements(IValidation)
class MachineChecks:
    """The checks of one stage, which is an app, or a part of it that is deployed by itself.

    Definitions are read once, however many guards there are.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._parts: list[PartOfMachine] = []

    @staticmethod
    def add(scope: IConstruct, part: PartOfMachine) -> None:
        """Has a part checked when the stage around the scope is synthesized."""
        stage = Stage.of(scope)
        if stage is None:
            return  # a tree that nobody can synthesize
        if stage not in _CHECKS:
            _CHECKS[stage] = MachineChecks(stage)
            stage.node.add_validation(_CHECKS[stage])
        _CHECKS[stage]._parts.append(part)  # noqa: SLF001 - its own

    def validate(self) -> list[str]:
        """The faults, as CDK lists them when it refuses to synthesize."""
        machines = read_machines(self._stage)
        faults = [
            f"{part.path}: {fault}"
            for part in self._parts
            for fault in part.faults(machines, self._parts)
        ]
        uses = [(use, _undefined(use)) for use in machines.undefined]
        uses += [(use, _as_text(use)) for use in machines.as_text]
        return faults + [f"{use.machine}: {fault}" for use, fault in uses]


def not_in_a_machine(field: str) -> InvalidRequest:
    """The fault of a part that no machine has."""
    rule = (
        "must be a part of a state machine, by DefinitionBody.from_chainable(…), "
        "or chained or nested in what is"
    )
    return InvalidRequest(field=field, rule=rule, value="none")


def _undefined(use: VariableUse) -> InvalidRequest:
    rule = (
        f"must be that of a guard around the state {use.state!r}: "
        "fencing_token_of and owner_id_of take the guard's own scope and construct_id"
    )
    return InvalidRequest(field="variable", rule=rule, value=f"${use.variable}")


def _as_text(use: VariableUse) -> InvalidRequest:
    rule = (
        f"must be read in the query language of the state {use.state!r}, which would hand on this "
        "text instead of the value: in JSONata fencing_token_of(…), in JSONPath "
        "JsonPath.number_at(LockGuard.fencing_token_path_of(…))"
    )
    return InvalidRequest(field="variable", rule=rule, value=f"${use.variable}")
