"""DynamoDB's condition and update expressions, interpreted: the part of the language we use.

Written from the DynamoDB developer guide, because it judges our code. An expression is parsed once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Value = Mapping[str, Any]
Item = dict[str, Any]
Path = tuple[str, ...]

_TOKEN = re.compile(r"\s*([#:]?\w+|<>|<=|>=|[=<>(),.+-])")
_PLACEHOLDER = re.compile(r"[#:]\w+")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class InvalidExpression(Exception):  # noqa: N818 - named like DynamoDB's ValidationException
    """DynamoDB would raise a ValidationException."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The item that an expression is applied to, and what the placeholders of the request mean."""

    item: Mapping[str, Any]
    names: Mapping[str, str]
    values: Mapping[str, Value]

    def value_at(self, path: Path) -> Value | None:
        """The value at a path of the item; None if there is none."""
        found: Any = {"M": self.item}
        for name in path:
            if found is None or "M" not in found:
                return None
            found = found["M"].get(self.names.get(name, name))
        result: Value | None = found
        return result


Condition = Callable[[Scope], bool]
Operand = Callable[[Scope], Value | None]
Change = tuple[Path, Operand | None]


def holds(condition: str, scope: Scope) -> bool:
    """Whether a condition or filter holds on the item."""
    return _condition(condition)(scope)


def changed(update: str, scope: Scope) -> Item:
    """The item after an update; all operands are read from the item before it."""
    item: Item = dict(scope.item)
    for path, operand in _changes(update):
        new = None if operand is None else operand(scope)
        if operand is not None and new is None:
            raise InvalidExpression("an operand does not exist in the item")
        _assign(item, [scope.names.get(name, name) for name in path], new)
    return item


def placeholders(*expressions: str) -> set[str]:
    """The names and values that the expressions use."""
    return set(_PLACEHOLDER.findall(" ".join(expressions)))


@lru_cache(maxsize=1024)
def _condition(text: str) -> Condition:
    parser = _Parser(text)
    condition = parser.disjunction()
    if parser.tokens:
        raise InvalidExpression(text)
    return condition


@lru_cache(maxsize=1024)
def _changes(text: str) -> list[Change]:
    return _Parser(text).changes()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        if "".join(self.tokens) != re.sub(r"\s", "", text):
            raise InvalidExpression(text)

    def peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def take(self, expected: str | None = None) -> str:
        if not self.tokens or expected not in (None, self.tokens[0]):
            raise InvalidExpression(f"expected {expected}, found {self.tokens[:3]}")
        token: str = self.tokens.pop(0)
        return token

    def takes(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.take()
        return True

    def disjunction(self) -> Condition:
        parts = [self.conjunction()]
        while self.takes("OR"):
            parts.append(self.conjunction())
        return lambda scope: any(part(scope) for part in parts)

    def conjunction(self) -> Condition:
        parts = [self.predicate()]
        while self.takes("AND"):
            parts.append(self.predicate())
        return lambda scope: all(part(scope) for part in parts)

    def predicate(self) -> Condition:
        if self.takes("("):
            inner = self.disjunction()
            self.take(")")
            return inner
        if self.peek() in ("attribute_exists", "attribute_not_exists"):
            wanted = self.take() == "attribute_exists"
            self.take("(")
            path = self.path()
            self.take(")")
            return lambda scope: (scope.value_at(path) is not None) is wanted
        if self.takes("begins_with"):
            self.take("(")
            path = self.path()
            self.take(",")
            start = self.operand()
            self.take(")")
            return lambda scope: _begins_with(scope.value_at(path), start(scope))
        left, comparison, right = self.operand(), self.take(), self.operand()
        if comparison not in _COMPARISONS:
            raise InvalidExpression(comparison)
        return lambda scope: _compare(left(scope), comparison, right(scope))

    def path(self) -> Path:
        names = [self.take()]
        while self.takes("."):
            names.append(self.take())
        return tuple(names)

    def operand(self) -> Operand:
        if self.peek().startswith(":"):
            placeholder = self.take()
            return lambda scope: scope.values[placeholder]
        if self.takes("if_not_exists"):
            self.take("(")
            path = self.path()
            self.take(",")
            otherwise = self.operand()
            self.take(")")
            return lambda scope: scope.value_at(path) or otherwise(scope)
        path = self.path()
        return lambda scope: scope.value_at(path)

    def sum(self) -> Operand:
        left = self.operand()
        if self.peek() not in ("+", "-"):
            return left
        sign = 1 if self.take() == "+" else -1
        right = self.operand()
        return lambda scope: _number(_int(left(scope)) + sign * _int(right(scope)))

    def changes(self) -> list[Change]:
        changes: list[Change] = []
        while self.tokens:
            verb = self.take()
            changes.append(self.change(verb))
            while self.takes(","):
                changes.append(self.change(verb))
        return changes

    def change(self, verb: str) -> Change:
        path = self.path()
        if verb == "REMOVE":
            return path, None
        if verb == "SET":
            self.take("=")
            return path, self.sum()
        if verb == "ADD":
            added = self.operand()
            zero = _number(0)
            return path, lambda scope: _number(
                _int(scope.value_at(path) or zero) + _int(added(scope))
            )
        raise InvalidExpression(verb)


def _assign(item: Item, path: list[str], value: Value | None) -> None:
    *parents, last = path
    for name in parents:
        if "M" not in item.get(name, {}):
            raise InvalidExpression("the document path is invalid for update")
        item[name] = {"M": dict(item[name]["M"])}
        item = item[name]["M"]
    if value is None:
        item.pop(last, None)
    else:
        item[last] = value


def _compare(left: Value | None, comparison: str, right: Value | None) -> bool:
    if left is None or right is None or set(left) != set(right):
        return comparison == "<>"
    ((kind, a),), ((_, b),) = left.items(), right.items()
    if kind == "N":
        a, b = int(a), int(b)
    return _COMPARISONS[comparison](a, b)


def _begins_with(text: Value | None, start: Value | None) -> bool:
    if text is None or start is None or "S" not in text:
        return False
    return bool(text["S"].startswith(start["S"]))


def _int(value: Value | None) -> int:
    if value is None or "N" not in value:
        raise InvalidExpression("an operand of the update is no number")
    return int(value["N"])


def _number(value: int) -> Value:
    return {"N": str(value)}
