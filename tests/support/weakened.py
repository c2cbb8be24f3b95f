"""The real code with one protection taken away: what mutants and controls are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeAlias
from unittest.mock import patch

from fairlock.protocol.table_requests import Delete, Transaction, Update
from fairlock.testing.interpreter import placeholders

Maker = Callable[..., Any]
Patch: TypeAlias = tuple[ModuleType | type, str, Any]
"""A module or class, the name of what is replaced in it, and by what."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """While this is open, these are replaced."""
    with ExitStack() as stack:
        for place, name, replacement in patches:
            stack.enter_context(patch.object(place, name, replacement))
        yield


def weak(module: ModuleType, name: str, condition: str, *, instead: str = "") -> Patch:
    """The request that this function makes loses one condition, or gets another instead of it."""
    return module, name, without(condition, vars(module)[name], instead=instead)


def without(condition: str, maker: Maker, *, instead: str = "") -> Maker:
    """Makes the same requests, with one condition replaced."""

    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the maker
        made = maker(*args, **kwargs)
        if isinstance(made, tuple):
            return (weaker(made[0], condition, instead=instead), *made[1:])
        return weaker(made, condition, instead=instead)

    return make


def weaker(request: Any, condition: str, *, instead: str = "") -> Any:  # noqa: ANN401 - as it is given
    """The same update, delete or transaction, with one condition of the first write replaced."""
    if isinstance(request, Transaction):
        return replace(request, state=weaker(request.state, condition, instead=instead))
    assert isinstance(request, Update | Delete)
    values: dict[str, Any] = {**request.values, ":always": {"BOOL": True}}
    text = request.condition.replace(condition, instead or ":always = :always")
    used = placeholders(text, request.change if isinstance(request, Update) else "")
    return replace(
        request,
        condition=text,
        names={name: value for name, value in request.names.items() if name in used},
        values={name: value for name, value in values.items() if name in used},
    )
