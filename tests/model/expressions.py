"""The words of DynamoDB's expressions that the protocol uses, evaluated on one item in memory.

`test_table_double.py` compares it with moto, write by write.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from leasehold.protocol.requests import Delete, Put, Query, Update

Attributes = dict[str, Any]
Request = Update | Put | Delete | Query

_TOKEN: Final = re.compile(r"[#:]\w+(?:\.#\w+)*|\w+|<=|>=|<>|[=<>()+,-]")
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CLAUSES: Final = ("SET", "REMOVE", "ADD")


class _Reader:
    """Reads one expression from left to right, over the item as it was before the write."""

    def __init__(self, text: str, write: Request, item: Attributes) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._names: Mapping[str, str] = write.names
        self._values: Mapping[str, Any] = {} if isinstance(write, Put) else write.values
        self._item = item

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def path(self) -> list[str]:
        return [self._names[name] for name in self.take().split(".")]

    def find(self, path: list[str]) -> Any:  # noqa: ANN401 - an attribute value or nothing
        found: Any = {"M": self._item}
        for name in path:
            if found is None or "M" not in found:
                return None
            found = found["M"].get(name)
        return found

    def any_of(self) -> bool:
        result = self.all_of()
        while self.peek() == "OR":
            self.take()
            result = self.all_of() or result
        return result

    def all_of(self) -> bool:
        result = self.term()
        while self.peek() == "AND":
            self.take()
            result = self.term() and result
        return result

    def term(self) -> bool:
        if self.peek() == "(":
            self.take()
            result = self.any_of()
            self.take()
            return result
        if self.peek() in ("attribute_exists", "attribute_not_exists"):
            wanted = self.take() == "attribute_exists"
            self.take()
            exists = self.find(self.path()) is not None
            self.take()
            return exists is wanted
        left = self.operand()
        compare = self.take()
        right = self.operand()
        if compare == "<>":
            return bool(left != right)
        return left is not None and _COMPARE[compare](_plain(left), _plain(right))

    def operand(self) -> Any:  # noqa: ANN401 - an attribute value or nothing
        if self.peek() == "if_not_exists":
            self.take(), self.take()
            found = self.find(self.path())
            self.take()
            default = self.operand()
            self.take()
            return default if found is None else found
        if self.peek().startswith(":"):
            return self._values[self.take()]
        return self.find(self.path())

    def arithmetic(self) -> Any:  # noqa: ANN401 - an attribute value
        value = self.operand()
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            value = {"N": str(_plain(value) + sign * _plain(self.operand()))}
        return value


def holds(request: Request, item: Attributes, *, condition: str | None = None) -> bool:
    """Whether the request's condition, or another of its conditions, holds on the item."""
    return _Reader(condition or request.condition or "", request, item).any_of()


def changed(update: Update, item: Attributes) -> Attributes:
    """The item after the update, all of whose operands are read from the item before it."""
    reader = _Reader(update.change, update, item)
    after = {**update.key, **item}
    clause = ""
    while reader.peek():
        if reader.peek() in _CLAUSES:
            clause = reader.take()
        elif reader.peek() == ",":
            reader.take()
        elif clause == "SET":
            path = reader.path()
            reader.take()
            _put(after, path, reader.arithmetic())
        elif clause == "REMOVE":
            after.pop(reader.path()[0], None)
        else:
            name = reader.path()
            sum_ = _plain(item.get(name[0], {"N": "0"})) + _plain(reader.operand())
            _put(after, name, {"N": str(sum_)})
    return after


def _put(item: Attributes, path: list[str], value: object) -> None:
    for name in path[:-1]:
        item[name] = {"M": dict(item[name]["M"])}
        item = item[name]["M"]
    item[path[-1]] = value


def _plain(value: Any) -> Any:  # noqa: ANN401 - any type that an attribute can have
    ((kind, plain),) = value.items()
    return int(plain) if kind == "N" else plain
