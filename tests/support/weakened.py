"""The real code with one protection taken away: what mutants and controls are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import getsource
from textwrap import dedent
from types import ModuleType
from typing import Any, TypeAlias
from unittest.mock import patch

from fairlock.protocol.table_requests import Check, Delete, Put, Transaction, Update
from fairlock.testing.interpreter import placeholders

Maker = Callable[..., Any]
Patch: TypeAlias = tuple[object, str, Any]
"""A module, class or function, the name of what is replaced in it, and by what."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """While this is open, these are replaced."""
    with ExitStack() as stack:
        for place, name, replacement in patches:
            if name == "__code__":  # `patch` would delete it in the end.
                stack.callback(setattr, place, name, getattr(place, name))
                setattr(place, name, replacement)
            else:
                stack.enter_context(patch.object(place, name, replacement))
        yield


def edited(place: ModuleType | type, name: str, old: str, new: str) -> Patch:
    """This function with a change of its source, wherever its name was imported to."""
    function = vars(place)[name]
    source = dedent(getsource(function))
    assert old in source, f"{name} has no {old!r}"
    made: dict[str, Any] = {}
    future = "from __future__ import annotations\n"
    exec(future + source.replace(old, new), {**function.__globals__}, made)  # noqa: S102 - our own
    return function, "__code__", made[name].__code__


def weak(module: ModuleType, name: str, text: str, *, instead: str = "") -> Patch:
    """The request that this function makes loses one condition, or gets another instead of it."""
    maker = vars(module)[name]

    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
        made = maker(*args, **kwargs)
        if isinstance(made, tuple):
            return (weaker(made[0], text, instead=instead), *made[1:])
        return weaker(made, text, instead=instead)

    return module, name, make


def weaker(request: Any, text: str, *, instead: str = "") -> Any:  # noqa: ANN401 - as it is given
    """The same write or transaction, with this text replaced in its conditions.

    In its changes, too, if there is something `instead`.
    """
    if isinstance(request, Transaction):
        writes = {"state": request.state, "other": request.other}
        weak_ones = {part: weaker(each, text, instead=instead) for part, each in writes.items()}
        return replace(request, **weak_ones)
    assert isinstance(request, Update | Delete | Put | Check)
    changes: dict[str, Any] = {"change": request.change} if isinstance(request, Update) else {}
    if text not in " ".join((request.condition or "", *changes.values())):
        return request
    values: dict[str, Any] = {**request.values, ":always": {"BOOL": True}}
    condition = (request.condition or "").replace(text, instead or ":always = :always")
    changes = {part: change.replace(text, instead or text) for part, change in changes.items()}
    used = placeholders(condition, *changes.values())
    return replace(
        request,
        **changes,
        condition=condition,
        names={name: value for name, value in request.names.items() if name in used},
        values={name: value for name, value in values.items() if name in used},
    )
