"""What one call of a locked function asks for: a name, and seconds to wait and to hold."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from string import Formatter
from typing import Any, Final, Literal

from fairlock.clock import lease_for
from fairlock.errors import InvalidRequest
from fairlock.text import ADDRESS, printable
from fairlock.wire.rules import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS

NameOf = Callable[..., str]
"""Makes the name of the lock from the arguments of a call."""

_DOTTED: Final = re.compile(r"\.(\w+)")
_LONGEST_REASON: Final = 200


class _Strict(Formatter):
    """Formats as `str.format`, but refuses values whose text differs between processes."""

    def convert_field(self, value: Any, conversion: Any) -> Any:  # noqa: ANN401 - whatever is there
        if value is None or value == "":
            raise ValueError(f"a value is {'None' if value is None else 'empty'}")
        kind: Any = type(value)
        if isinstance(value, list | tuple) and kind.__str__ is object.__str__:
            raise ValueError(f"{kind.__name__} is not one value: name an element of it")
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            raise ValueError(f"{kind.__name__} has no text of its own, only an address")
        if isinstance(value, set | frozenset | Mapping):
            raise ValueError(f"{kind.__name__} has its elements in any order")  # noqa: TRY004 - the value is wrong
        if conversion is None and isinstance(value, str):
            return str.__str__(value)  # As `acquire` takes it: an enum's own text is `Name.ORDERS`.
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:  # noqa: ANN401 - same
        """Makes the same text of equal numbers: an id may come as 7, 7.0 or Decimal("7.00")."""
        if not format_spec and isinstance(value, float | Decimal):
            return _text_of_number(value)
        return super().format_field(value, format_spec)


def _text_of_number(value: float | Decimal) -> str:
    if not math.isfinite(value):
        raise ValueError("a number is not finite")
    if value == int(value):
        return str(int(value))
    return format(value.normalize(), "f") if isinstance(value, Decimal) else repr(value)


def template(text: str, signature: inspect.Signature) -> NameOf:
    """Returns a function that fills the fields in braces with the arguments of a call."""
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
            what = _explained(text, named, error)
            rule = f"must be formed from the arguments of the call, but {what}"
            raise InvalidRequest(field="name", rule=rule, value=text) from error

    return name_of


def _explained(text: str, named: Mapping[str, Any], error: Exception) -> str:
    for name in _fields(text):
        if named.get(name, "given") in (None, ""):
            return f"{name} is {'None' if named[name] is None else 'empty'}: pass its value"
    what = printable(f"{type(error).__name__}: {error}"[:_LONGEST_REASON])
    for field in (part[1] for part in Formatter().parse(text) if part[1]):
        root, *rest = re.split(r"[.\[]", field)
        if isinstance(error, AttributeError) and rest and isinstance(named.get(root), Mapping):
            subscripts = _DOTTED.sub(r"[\1]", field)
            return f"{what}: write {{{subscripts}}}"
    return f"{what} is missing: pass it" if isinstance(error, KeyError) else what


def _without_address(name: str) -> str:
    """The name; `ValueError` if a value in it is shown by its address, as within a list."""
    if ADDRESS.search(name):
        raise ValueError("a value has no text of its own, only an address")
    return name


def is_function_to_decorate(value: object) -> bool:
    """Whether `@locked` without parentheses was given this; a lambda makes names instead."""
    if isinstance(value, staticmethod | classmethod | type):
        return True
    return inspect.isfunction(value) and value.__name__ != "<lambda>"


def own_name(function: Any, *, is_handler: Callable[[Sequence[Any]], bool]) -> NameOf:  # noqa: ANN401 - any function
    """Returns a function that names the lock after this function, whatever the arguments."""
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


IfTaken = Literal["wait", "skip", "raise"]

LOCK_PARAMETER: Final = "lock"
_AFTER_THE_DEADLINE_SECONDS: Final = 1.0
"""Lambda stops a function that timed out a little later than the deadline that it announced."""
_WORTH_A_REQUEST_SECONDS: Final = 2.0
"""A lease that a wait has made too long by this much is shortened with a heartbeat."""
_TO_FAIL_SECONDS: Final = 1.0
"""Left of the invocation after a wait in vain: to leave the queue, and to raise an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a locked function; None stands for the client's time, or for no bound."""

    name: str
    lease: float | None
    max_wait: float | None
    max_hold: float | None
    seconds_left: Callable[[], float] | None

    @property
    def needs_heartbeats(self) -> bool:
        """Whether its lease is not one that lasts to the end of an invocation."""
        return self.seconds_left is None or self.lease is not None

    def lease_to_the_end(self) -> float | None:
        """Seconds until the invocation must have ended; None if that is not this call's lease."""
        if self.seconds_left is None or self.needs_heartbeats:
            return None
        # Nothing renews this lease, so it is not longer than the lock may be held.
        left = min(self.seconds_left(), self.max_hold or math.inf)
        seconds = lease_for(left + _AFTER_THE_DEADLINE_SECONDS)
        return min(max(seconds, SHORTEST_LEASE_SECONDS), LONGEST_LEASE_SECONDS)

    def shorter_lease(self, lease: float) -> float | None:
        """The lease that lasts to the end, if a wait has made the granted one too long."""
        left = self.lease_to_the_end()
        return left if left is not None and left < lease - _WORTH_A_REQUEST_SECONDS else None

    def max_wait_with(self, default: float) -> float:
        """Seconds to wait, with a client that waits `default` seconds for its locks."""
        max_wait = default if self.max_wait is None else self.max_wait
        if self.seconds_left is None:
            return max_wait
        return min(max_wait, max(0.0, self.seconds_left() - _TO_FAIL_SECONDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known about a locked function when it is decorated."""

    signature: inspect.Signature
    passes_lock: bool
    name_of: NameOf

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any], **seconds: float | None) -> Call:
        """Tells what a call with these arguments asks for."""
        self.signature.bind(*args, **kwargs)
        return Call(name=self.name_of(*args, **kwargs), **seconds, seconds_left=_seconds_left(args))


def plan_for(function: Callable[..., Any], name: str | NameOf | None) -> Plan:
    """Inspects a function that is being decorated."""
    if not callable(function) or isinstance(function, staticmethod):
        rule = "must be a function; below @staticmethod and @classmethod, not above"
        raise InvalidRequest(field="function", rule=rule, value=function)
    if inspect.isclass(function):
        rule = "must be a function, and no class: decorate the methods that do the work"
        raise InvalidRequest(field="function", rule=rule, value=function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        rule = "must not be a generator: it runs when its lock has been released already"
        raise InvalidRequest(field="function", rule=rule, value=function)
    signature, passes_lock = _without_lock(inspect.signature(function))
    name_of: Any = template(name, signature) if isinstance(name, str) else name
    if name is None:
        name_of = own_name(function, is_handler=lambda args: _seconds_left(args) is not None)
    if not callable(name_of):
        rule = "must be a string, or a function that makes one from the arguments of a call"
        if isinstance(name, list | tuple | set):
            rule = (
                "must be one name: for several locks decorate the function once for each, from top "
                "to bottom in the order of sorted(names), or call hold_all of a client in it"
            )
        raise InvalidRequest(field="name", rule=rule, value=name)
    return Plan(signature=signature, passes_lock=passes_lock, name_of=name_of)


def _without_lock(signature: inspect.Signature) -> tuple[inspect.Signature, bool]:
    lock = signature.parameters.get(LOCK_PARAMETER)
    if lock is None or lock.kind in {lock.VAR_POSITIONAL, lock.VAR_KEYWORD}:
        return signature, False
    if lock.kind is lock.POSITIONAL_ONLY:
        rule = "must not be positional-only, as it gets the lock by its name"
        raise InvalidRequest(field=LOCK_PARAMETER, rule=rule, value=str(signature))
    others = [one for one in signature.parameters.values() if one is not lock]
    by_position = [one for one in signature.parameters.values() if one.kind <= lock.VAR_POSITIONAL]
    if lock.kind is not lock.KEYWORD_ONLY and by_position[-1] is not lock:
        rule = "must be the last parameter or keyword-only, as it gets the lock"
        raise InvalidRequest(field=LOCK_PARAMETER, rule=rule, value=str(signature))
    return signature.replace(parameters=others), True


def refuse_coroutine(result: object) -> None:
    """Refuses a coroutine of a plain function: its body would run after the release of the lock."""
    if isinstance(result, Coroutine):
        result.close()
        rule = "must be a coroutine function (async def) if it returns a coroutine"
        raise InvalidRequest(field="function", rule=rule, value=result)


def _seconds_left(args: Sequence[Any]) -> Callable[[], float] | None:
    """The invocation's time, if the second argument is the context of a Lambda function."""
    if len(args) < 2:  # noqa: PLR2004 - event and context
        return None
    remaining = getattr(args[1], "get_remaining_time_in_millis", None)
    return (lambda: remaining() / 1000) if callable(remaining) else None
