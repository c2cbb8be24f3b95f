"""The workflow variable of a guard or an update, and the JSONata that reads it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from constructs import IConstruct

from fairlock.cdk.construct_arguments import check_place

_LONGEST_READABLE: Final = 50  # Step Functions allows variable and state names of 80 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowVariable:
    """The one variable of a guard, which holds its lock, or of an update.

    Its name comes from the construct's path. So it is known before the guard exists, and two guards
    never share one: Step Functions forbids a guard inside another to assign the outer's variable.
    """

    name: str
    label: str

    @classmethod
    def of(cls, scope: IConstruct, construct_id: str, *, prefix: str = "lock") -> WorkflowVariable:
        """The variable of the construct with this id in this scope.

        Raises:
            InvalidRequest: one of them is something else.
        """
        check_place(scope, construct_id)
        path = f"{scope.node.path}/{construct_id}"
        digest = hashlib.sha256(path.encode()).hexdigest()[:8]
        readable = re.sub(r"\W", "_", construct_id, flags=re.ASCII)[:_LONGEST_READABLE]
        label = (
            construct_id
            if len(construct_id) <= _LONGEST_READABLE
            else f"{construct_id[:_LONGEST_READABLE]}-{digest}"
        )
        return cls(name=f"{prefix}_{readable}_{digest}", label=label)

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
