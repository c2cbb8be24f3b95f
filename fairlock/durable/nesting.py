"""Refuses a lock inside itself: its wait would end only with `max_wait`.

Branches of `context.parallel` and `context.map` stand beside each other, not inside each other, and
may wait for the same lock. So a lock counts as taken only for the part of the execution that runs
inside of the `with` block: its own context, and the contexts below that.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from aws_durable_execution_sdk_python import DurableContext

from fairlock.errors import InvalidRequest

Scope = tuple[str | None, str]
"""The context that holds a lock, and the lock's name."""

_held: WeakKeyDictionary[Any, set[Scope]] = WeakKeyDictionary()
"""By the state of an invocation. Each invocation replays, and so fills its own anew."""
_mutex = threading.Lock()


def require_not_inside(context: DurableContext, name: str) -> None:
    """Refuses a name that an enclosing `hold` of the same execution has.

    Raises:
        InvalidRequest: the lock is held by the part of the execution around this one.
    """
    with _mutex:
        held = set(_held.get(context.state, ()))
    if any((enclosing, name) in held for enclosing in _contexts_around(context)):
        rule = "must not be held already by this part of the execution: it would wait for itself"
        raise InvalidRequest(field="name", rule=rule, value=name)


def enter(context: DurableContext, name: str) -> None:
    """From now on the context holds the lock."""
    with _mutex:
        _held.setdefault(context.state, set()).add((_identity(context), name))


def leave(context: DurableContext, name: str) -> None:
    """The context has left the `with` block: it has released, or was suspended."""
    with _mutex:
        _held.get(context.state, set()).discard((_identity(context), name))


def _identity(context: DurableContext) -> str | None:
    """The id of the operation that made the context; None of the root."""
    operation: str | None = context._step_id_prefix  # noqa: SLF001 - the SDK has no public name for it
    return operation


def _contexts_around(context: DurableContext) -> Iterator[str | None]:
    """The context itself, and those around it up to the root."""
    yield _identity(context)
    parent: str | None = context._parent_id  # noqa: SLF001 - same
    while parent is not None:
        yield parent
        operation = context.state.operations.get(parent)
        parent = None if operation is None else operation.parent_id
    yield None
