"""Where a deployed service tells its names: the Parameter Store, and the environment of a program.

The constructs write the parameters; other stacks, clients and the command read them.
"""

from __future__ import annotations

import re
from typing import Final

from leasehold.errors import InvalidRequest

TABLE_NAME: Final = "LockTableName"
"""The output and the parameter with the name of the lock table."""
TABLE_NAME_VARIABLE: Final = "LEASEHOLD_TABLE_NAME"
"""Where a program finds the lock table if its code names none."""
_STACK_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,127}")


def parameter_path(stack_name: str, name: str) -> str:
    """Where in the Parameter Store a stack's service tells a name.

    Raises:
        InvalidRequest: no stack can have this name.
    """
    if not isinstance(stack_name, str) or _STACK_NAME.fullmatch(stack_name) is None:
        rule = "must be the name of a stack: a letter, then up to 127 letters, digits and hyphens"
        raise InvalidRequest(field="stack_name", rule=rule, value=stack_name)
    return f"/leasehold/{stack_name}/{name}"
