"""Lock names from the arguments of a call: `orders/{order_id}`, `{event[detail][id]}`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any, Final

from fairlock.errors import InvalidRequest, shorten

NameOf = Callable[..., str]
"""Makes the name of the lock from the arguments of a call."""

_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+>")


class _Strict(Formatter):
    """Formats as `str.format`, but refuses values whose text differs between processes."""

    def convert_field(self, value: Any, conversion: Any) -> Any:  # noqa: ANN401 - whatever is there
        """Applies `!r` and the like to one value."""
        if value is None:
            raise ValueError("a value is None")
        kind: Any = type(value)
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            raise ValueError(f"{kind.__name__} has no text of its own, only an address")
        if isinstance(value, set | frozenset | Mapping):
            raise ValueError(f"{kind.__name__} has its elements in any order")  # noqa: TRY004 - the value is wrong
        if conversion is None and isinstance(value, str):
            return str.__str__(value)  # As `acquire` takes it: an enum's own text is `Name.ORDERS`.
        return super().convert_field(value, conversion)


def template(text: str, signature: inspect.Signature) -> NameOf:
    """Returns a function that fills the fields in braces with the arguments of a call.

    Raises:
        InvalidRequest: the text is no format string, or has a field that is no parameter.
    """
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for field in _fields(text):
        if field not in signature.parameters and not any_keyword:
            names = ", ".join(signature.parameters) or "none"
            rule = f"its fields must be parameters of the function ({names})"
            raise InvalidRequest(field="name", rule=rule, value=text)

    def name_of(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401 - as the function
        named = _by_name(signature, args, kwargs)
        try:
            return _without_address(_Strict().vformat(text, (), named))
        except Exception as error:
            # Whatever a value's own text raises: this is about the arguments of a call.
            what = f"{type(error).__name__}: {error}"
            rule = f"must be formed from the arguments of the call, but {shorten(what)}"
            raise InvalidRequest(field="name", rule=rule, value=text) from error

    return name_of


def _without_address(name: str) -> str:
    """The name; `ValueError` if a value in it is shown by its address, as within a list."""
    if _ADDRESS.search(name):
        raise ValueError("a value has no text of its own, only an address")
    return name


def is_function_to_decorate(value: object) -> bool:
    """Whether `@locked` without parentheses was given this; a lambda makes names instead."""
    if isinstance(value, staticmethod | classmethod | type):
        return True
    return inspect.isfunction(value) and value.__name__ != "<lambda>"


def own_name(function: Any, *, is_handler: Callable[[Sequence[Any]], bool]) -> NameOf:  # noqa: ANN401 - any function
    """Returns a function that names the lock after this function, whatever the arguments.

    Args:
        function: what is decorated.
        is_handler: whether arguments are those of a Lambda handler.

    Raises:
        InvalidRequest: the function stands in the program itself, or has no name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module in {None, "__main__"} or name is None:
        rule = "must be given for a function of the program itself (__main__) or without a name"
        raise InvalidRequest(field="name", rule=rule, missing=True)
    own = f"{module}.{name}"

    def name_of(*args: Any, **_kwargs: Any) -> str:  # noqa: ANN401 - as the function
        if is_handler(args):
            rule = f"must be given for a Lambda handler: others may be called {own!r} too"
            raise InvalidRequest(field="name", rule=rule, missing=True)
        return own

    return name_of


def _fields(text: str) -> list[str]:
    """Lists the names of the arguments that a template uses."""
    try:
        parts = [part[1] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError as error:
        rule = f"must be a format string: {error}"
        raise InvalidRequest(field="name", rule=rule, value=text) from error
    return [part.partition(".")[0].partition("[")[0] for part in parts]


def _by_name(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    named = dict(bound.arguments)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named = {**named.pop(parameter.name), **named}
    return named
