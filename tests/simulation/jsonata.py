"""The JSONata that the guard's states use, compiled to functions of Python.

An interpreter of the whole language takes a millisecond an expression, and a simulated execution
evaluates some fifteen of them. `test_jsonata.py` compares this one with the package
`jsonata-python` on every expression of the recorded machines. What is not needed is refused when
it is compiled.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Final

Code = Callable[[dict[str, Any]], Any]
"""Is given variables and functions by their names, with `$`; `$states` is one of them."""


class EvaluationError(Exception):
    """Step Functions fails the state with States.QueryEvaluationError."""


class Missing:
    """The value of a path that leads nowhere. A field that has it is left out of an object."""


MISSING: Final = Missing()
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'[^']*'|"[^"]*")|(?P<name>\$?[A-Za-z_]\w*)"""
    r"|(?P<sign>:=|<=|>=|!=|\.\.|[\[\]{}(),;:?.&=<>+*/-]))"
)
_REGEX: Final = re.compile(r"\s*/((?:[^/\\]|\\.)+)/")
_POWERS: Final = {
    ":=": 10,
    "?": 20,
    "or": 25,
    "and": 30,
    "=": 40,
    "!=": 40,
    "<": 40,
    "<=": 40,
    ">": 40,
    ">=": 40,
    "&": 50,
    "+": 50,
    "-": 50,
    "*": 60,
    "/": 60,
    ".": 75,
    "[": 80,
    "(": 80,
}


_LITERALS: Final[dict[str, Callable[[str], Any]]] = {
    "number": lambda text: float(text) if "." in text else int(text),
    "text": lambda text: text[1:-1],
    "regex": re.compile,
}


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        regex = _REGEX.match(text, at)
        if regex and (not found or found[-1][1] in {"(", ","}):
            found.append(("regex", regex.group(1)))
            at = regex.end()
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            message = f"unknown JSONata at {text[at:]!r}"
            raise SyntaxError(message)
        kind = str(token.lastgroup)
        found.append((kind, token.group(kind)))
        at = token.end()
    return [*found, ("end", "")]


class _Parser:
    """A Pratt parser whose results are functions of the variables."""

    def __init__(self, text: str) -> None:
        self._tokens, self._at = _tokens(text), 0

    def whole(self) -> Code:
        found = self._expression(0)
        self._take("")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> tuple[str, str]:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, sign: str) -> None:
        kind, text = self._next()
        if text != sign:
            message = f"{sign or 'the end'} expected, not {kind} {text!r}"
            raise SyntaxError(message)

    def _expression(self, power: int) -> Code:
        left = self._prefix()
        while _POWERS.get(self._peek(), 0) > power:
            left = self._infix(left)
        return left

    def _prefix(self) -> Code:
        kind, text = self._next()
        if kind in _LITERALS:
            value = _LITERALS[kind](text)
            return lambda _: value
        if kind == "name":
            return _named(text)
        bracketed = {"(": self._block, "[": self._array, "{": self._object}
        if text in bracketed:
            return bracketed[text]()
        message = f"no JSONata that is known here: {kind} {text!r}"
        raise SyntaxError(message)

    def _infix(self, left: Code) -> Code:
        _, sign = self._next()
        if sign == "(":
            return self._call(left)
        if sign == "[":
            return self._range(left)
        if sign == "?":
            then = self._expression(0)
            self._take(":")
            other = self._expression(0)
            return lambda values: then(values) if _is_true(left(values)) else other(values)
        if sign == ".":
            _, name = self._next()
            return lambda values: _step(left(values), name)
        right = self._expression(_POWERS[sign])
        return _operation(sign, left, right)

    def _block(self) -> Code:
        steps: list[tuple[str | None, Code]] = []
        while True:
            name = None
            if self._tokens[self._at + 1][1] == ":=":
                name = self._next()[1]
                self._take(":=")
            steps.append((name, self._expression(0)))
            if self._next()[1] == ")":
                break

        def block(values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
            own, found = dict(values), None
            for name, code in steps:
                found = code(own)
                if name is not None:
                    own[name] = found
            return found

        return steps[0][1] if len(steps) == 1 else block

    def _array(self) -> Code:
        parts: list[Code] = []
        while self._peek() != "]":
            parts.append(self._expression(0))
            if self._peek() == ",":
                self._next()
        self._take("]")
        return lambda values: [found for part in parts if (found := part(values)) is not MISSING]

    def _object(self) -> Code:
        parts: list[tuple[Code, Code]] = []
        while self._peek() != "}":
            name = self._expression(0)
            self._take(":")
            parts.append((name, self._expression(0)))
            if self._peek() == ",":
                self._next()
        self._take("}")
        return lambda values: {
            name(values): found for name, part in parts if (found := part(values)) is not MISSING
        }

    def _call(self, function: Code) -> Code:
        arguments: list[Code] = []
        while self._peek() != ")":
            arguments.append(self._expression(0))
            if self._peek() == ",":
                self._next()
        self._take(")")
        return lambda values: function(values)(*[argument(values) for argument in arguments])

    def _range(self, left: Code) -> Code:
        """Only `x[0]` and `x[[0..4]]`, the first ones of a list."""
        if self._peek() == "[":
            self._take("[")
            first = int(self._next()[1])
            self._take("..")
            last = int(self._next()[1])
            self._take("]")
        else:
            first = last = int(self._next()[1])
        self._take("]")

        def some(values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
            found = left(values)
            if found is MISSING:
                return MISSING
            return _sequence((found if isinstance(found, list) else [found])[first : last + 1])

        return some


def _named(name: str) -> Code:
    if name in {"true", "false"}:
        return lambda _: name == "true"
    if name == "null":
        return lambda _: None
    if not name.startswith("$"):
        message = f"a bare field name: {name!r}"
        raise SyntaxError(message)
    return lambda values: values[name] if name in values else FUNCTIONS.get(name, MISSING)


def _step(value: Any, name: str) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return value.get(name, MISSING)
    if not isinstance(value, list):
        return MISSING
    found = [_step(each, name) for each in value]
    return _sequence([each for each in found if each is not MISSING])


def _sequence(found: list[Any]) -> Any:  # noqa: ANN401 - any JSON
    if not found:
        return MISSING
    return found[0] if len(found) == 1 else found


def _is_true(value: Any) -> bool:  # noqa: ANN401 - any JSON
    return value is not MISSING and bool(value)


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _operation(sign: str, left: Code, right: Code) -> Code:
    if sign == "&":
        return lambda values: _text(left(values)) + _text(right(values))
    if sign == "and":
        return lambda values: _is_true(left(values)) and _is_true(right(values))
    if sign == "or":
        return lambda values: _is_true(left(values)) or _is_true(right(values))
    compute = _OPERATIONS[sign]
    if_missing = False if sign in {"=", "!="} else MISSING

    def operation(values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        first, second = left(values), right(values)
        if first is MISSING or second is MISSING:
            return if_missing
        return compute(first, second)

    return operation


def _same(first: Any, second: Any) -> bool:  # noqa: ANN401 - any JSON
    return type(first) is type(second) and bool(first == second)


def _divided(first: float, second: float) -> float:
    found = first / second
    return int(found) if found == int(found) else found


_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": _same,
    "!=": lambda first, second: not _same(first, second),
    "<": lambda first, second: first < second,
    "<=": lambda first, second: first <= second,
    ">": lambda first, second: first > second,
    ">=": lambda first, second: first >= second,
    "+": lambda first, second: first + second,
    "-": lambda first, second: first - second,
    "*": lambda first, second: first * second,
    "/": _divided,
}


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _fail(message: str) -> Any:  # noqa: ANN401 - never
    raise EvaluationError(message)


def _joined(parts: Any, sign: str = "") -> Any:  # noqa: ANN401 - any JSON
    if parts is MISSING:
        return MISSING
    return sign.join(parts if isinstance(parts, list) else [parts])


def _kind(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if value is MISSING:
        return MISSING
    kinds = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _to_millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "$exists": lambda value: value is not MISSING,
    "$merge": _merged,
    "$max": max,
    "$min": min,
    "$ceil": math.ceil,
    "$floor": math.floor,
    "$power": lambda base, exponent: base**exponent,
    "$string": lambda value: MISSING if value is MISSING else _text(value),
    "$length": len,
    "$replace": lambda text, found, by: found.sub(by, text),
    "$parse": json.loads,
    "$type": _kind,
    "$join": _joined,
    "$error": _fail,
    "$toMillis": _to_millis,
}


@cache
def compiled(text: str) -> Code:
    """An expression without its `{% %}`."""
    return _Parser(text).whole()


def evaluate(template: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - any JSON
    """A field of a state: its expressions replaced by their values.

    Raises:
        EvaluationError: an expression fails, or leads nowhere.
    """
    if isinstance(template, str):
        if not (template.startswith("{%") and template.endswith("%}")):
            return template
        found = compiled(template[2:-2])(values)
        if found is MISSING:
            message = f"{template} returned nothing"
            raise EvaluationError(message)
        return found
    if isinstance(template, dict):
        return {name: evaluate(part, values) for name, part in template.items()}
    if isinstance(template, list):
        return [evaluate(part, values) for part in template]
    return template
