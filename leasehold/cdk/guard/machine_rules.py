"""The rules for a guard in the state machine in which it ended up, and beside other guards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Annotations
from aws_cdk import aws_stepfunctions as sfn
from constructs import IConstruct

from leasehold.cdk.machine_checks import PartOfMachine, not_in_a_machine
from leasehold.cdk.machine_definitions import Machines
from leasehold.cdk.workflow_variable import is_jsonata
from leasehold.errors import InvalidRequest

_MIXED: Final = "leasehold:mixedGuards"
_NO_TASK_TOKENS: Final = (
    "must be True in an Express workflow: Step Functions has no task tokens there, "
    "and reports the end of no execution"
)
_REAPED: Final = (
    "must be left out in a Standard workflow: its lock then ends with the execution, not the lease"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardInMachine:
    """What the rules have to know of a guard.

    Attributes:
        construct: the guard.
        variable: the name of its variable.
        work: the state of its work, in which others may be.
        lock_name: the lock, if its name is known at synth.
        service: tells one lock service from another.
        express: what the guard was told of its machine.
        limit: how many it lets in, or JSONata.
        waiting: how it waits, as a caller writes it; None if it does not wait.
    """

    construct: IConstruct
    variable: str
    work: sfn.State
    lock_name: str | None
    service: str
    express: bool
    limit: int | str
    waiting: str | None

    @property
    def path(self) -> str:
        """The guard's path in the app."""
        return self.construct.node.path

    def faults(
        self, machines: Machines, parts: Sequence[PartOfMachine]
    ) -> Iterator[InvalidRequest]:
        """The rules that the guard breaks; warns of guards of one lock that do not fit together."""
        places = machines.placements.get(self.variable, [])
        if not places:
            yield not_in_a_machine("guard")
        for place in places:
            if place.express != self.express:
                rule = _NO_TASK_TOKENS if place.express else _REAPED
                told = f"{self.express}, in {place.machine}"
                yield InvalidRequest(field="express", rule=rule, value=told)
        rivals = [part for part in parts if isinstance(part, GuardInMachine) and self._rivals(part)]
        for outer in rivals:
            if self._is_inside(outer, machines):
                rule = (
                    f"must not be that of the guard around this one, {outer.path}, "
                    "which holds the lock for as long as this one waits"
                )
                yield InvalidRequest(field="lock_name", rule=rule, value=self.lock_name)
        earlier = parts[: parts.index(self)]
        self._warn_beside([rival for rival in rivals if rival in earlier])

    def _rivals(self, other: GuardInMachine) -> bool:
        """Whether both are known to want one lock."""
        is_known = self.lock_name is not None and other is not self
        return is_known and (self.service, self.lock_name) == (other.service, other.lock_name)

    def _is_inside(self, outer: GuardInMachine, machines: Machines) -> bool:
        outer_machines = {place.machine for place in machines.placements.get(outer.variable, ())}
        return any(
            place.machine in outer_machines and outer.work.state_id in place.around
            for place in machines.placements.get(self.variable, ())
        )

    def _warn_beside(self, rivals: Sequence[GuardInMachine]) -> None:
        """Warns if another guard of the lock has another limit, or another way to wait.

        What then holds is defined: a guard is never joined by more than its own limit allows, and a
        polling guard gets nothing as long as others queue. Mostly it is a mistake.
        """
        for other in rivals:
            differences = [
                f"{field}={mine} here and {theirs} there"
                for field, mine, theirs in (
                    ("limit", self.limit, other.limit),
                    ("waiting", self.waiting, other.waiting),
                )
                if mine != theirs and None not in {mine, theirs}
                if not is_jsonata(mine) and not is_jsonata(theirs)
            ]
            if differences:
                text = f"lock_name {self.lock_name!r} is also that of {other.path}: "
                Annotations.of(self.construct).add_warning_v2(
                    _MIXED, text + ", and ".join(differences)
                )
                return
