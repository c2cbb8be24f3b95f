"""The rule for an update in the state machine in which it ended up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from constructs import IConstruct

from fairlock.cdk.machine_checks import PartOfMachine, not_in_a_machine
from fairlock.cdk.machine_definitions import Machines
from fairlock.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UpdateInMachine:
    """What the rule has to know of an update."""

    construct: IConstruct
    variable: str

    @property
    def path(self) -> str:
        """The update's path in the app."""
        return self.construct.node.path

    def faults(
        self,
        machines: Machines,
        parts: Sequence[PartOfMachine],  # noqa: ARG002 - of the protocol
    ) -> Iterator[InvalidRequest]:
        """An update has to be in a machine."""
        if self.variable not in machines.placements:
            yield not_in_a_machine("update")
