"""Groundwork of several corrections: the context object of the state that is running.

Many of the emulator's functions that resolve a path or finish a state are not told in which
execution they work. Here each state's handler leaves its context object (with the workflow's
variables) where they can find it; threads of branches inherit it.
"""

import contextvars
import functools
from collections.abc import Callable
from typing import Any

from ministack.services import stepfunctions

_context: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "state_context", default=None
)

# Handlers by how they are called: the context object is always the last argument.
_HANDLERS = ("pass", "task", "choice", "wait", "parallel", "map")


def context() -> dict[str, Any]:
    """The running state's context object; empty outside of any state."""
    return _context.get() or {}


@functools.cache
def install() -> None:
    """Remember the context object around every state; once, whichever correction asks first."""
    for state_type in _HANDLERS:
        _wrap(f"_execute_{state_type}")
    _wrap("_fail_state_error")
    _wrap("_apply_input_path")  # the first call of a Succeed state, which has no handler


def _wrap(name: str) -> None:
    original: Callable[..., Any] = getattr(stepfunctions, name)

    def with_context(*arguments: Any) -> Any:
        given = arguments[-1]
        token = _context.set(given)
        try:
            return original(*arguments)
        finally:
            if name != "_apply_input_path":
                _context.reset(token)

    setattr(stepfunctions, name, with_context)
