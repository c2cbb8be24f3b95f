"""The two kinds of executions that hold locks, told apart by their ARNs and by their tokens.

    arn:…:states:…:execution:MACHINE:NAME                               Standard workflow
    arn:…:lambda:…:function:NAME:VERSION/durable-execution/NAME/ID      durable function

A workflow that waits names a task token, a durable execution a callback id. Both are opaque texts
that look alike. So a callback id is stored with a prefix that no task token has.
"""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = r"[^:\s<>{}\[\]?*\"#%\\^|~`$&,;]"  # as StartExecution has it, and a map's label
_STANDARD: Final = re.compile(
    rf"arn:[a-z0-9-]+:states:[a-z0-9-]+:[0-9]{{12}}:execution:{_NAMED}{{1,200}}:{_NAMED}{{1,80}}"
)
_DURABLE: Final = re.compile(
    r"arn:[a-z0-9-]+:lambda:[a-z0-9-]+:[0-9]{12}:function:[a-zA-Z0-9_-]{1,140}"
    r":(\$LATEST(\.PUBLISHED)?|[0-9]+)/durable-execution/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+"
)
_CALLBACK_ID: Final = re.compile(r"[A-Za-z0-9+/]{1,1022}={0,2}")
_PREFIX: Final = "callback:"


def is_standard(arn: str) -> bool:
    """Whether this is the ARN of an execution of a Standard workflow."""
    return _STANDARD.fullmatch(arn) is not None


def is_durable(arn: str) -> bool:
    """Whether this is the ARN of a durable execution."""
    return _DURABLE.fullmatch(arn) is not None


def is_callback_id(text: str) -> bool:
    """Whether Lambda takes this text for the id of a callback."""
    return _CALLBACK_ID.fullmatch(text) is not None


def callback_token(callback_id: str) -> str:
    """The text that stands for a callback where a workflow has its task token."""
    return f"{_PREFIX}{callback_id}"


def callback_id_in(token: str) -> str | None:
    """The callback's id; None if the token is a workflow's task token."""
    return token.removeprefix(_PREFIX) if token.startswith(_PREFIX) else None
