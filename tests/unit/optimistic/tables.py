"""Tables that count, that fail, and that let somebody else write in between."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from botocore.exceptions import ClientError

from leasehold.dynamodb.retry import RetryBudget
from tests.support import FakeClock

ACCOUNTS: Final = "accounts"
ANNA: Final = {"account": "anna"}
_WRITES: Final = ("put_item", "delete_item")

Item = dict[str, Any]


def plain(item: Any) -> Item | None:  # noqa: ANN401 - an item or None
    """An item without the id of its write, and with whole numbers."""
    if item is None:
        return None
    return {
        name: int(value) if name in {"balance", "version"} else value
        for name, value in item.items()
        if name != "version_id"
    }


def stored(table: Any) -> Item | None:  # noqa: ANN401 - a Table or one of these
    return plain(table.get_item(Key=ANNA, ConsistentRead=True).get("Item"))


def add(amount: int) -> Callable[[Item | None], Item]:
    """A change that shows when it is made twice."""

    def change(item: Item | None) -> Item:
        item = item or {"balance": 0}
        item["balance"] += amount
        return item

    return change


def noted(change: Callable[[Item | None], Item], calls: list[Any]) -> Callable[[Any], Item]:
    """The change, and what it was called with."""

    def noted_change(item: Item | None) -> Item:
        calls.append(copy.deepcopy(item))
        return change(item)

    return noted_change


def retry_budget(clock: FakeClock | None = None) -> RetryBudget:
    return RetryBudget(clock=clock or FakeClock(), random=lambda: 0.5)


@dataclass
class _Wrapped:
    inner: Any

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        if not callable(attribute):
            return attribute
        return lambda **arguments: self._call(name, attribute, arguments)

    def _call(self, name: str, send: Callable[..., Any], arguments: Item) -> Any:  # noqa: ANN401 - as boto3 answers
        raise NotImplementedError


@dataclass
class CountingTable(_Wrapped):
    """Remembers which requests were made."""

    calls: list[str] = field(default_factory=list)

    def _call(self, name: str, send: Callable[..., Any], arguments: Item) -> Any:  # noqa: ANN401 - as boto3 answers
        self.calls.append(name)
        return send(**arguments)


@dataclass
class FaultyTable(_Wrapped):
    """Fails writes, `before` they are done or `after`; all of them if no calls are given.

    Attributes:
        calls: which writes fail, counted from 1.
        then: happens right after a failed write.
    """

    error: Exception
    when: Literal["before", "after"] = "before"
    calls: Collection[int] = ()
    then: Callable[[], object] | None = None
    count: int = 0

    def _call(self, name: str, send: Callable[..., Any], arguments: Item) -> Any:  # noqa: ANN401 - as boto3 answers
        if name not in _WRITES:
            return send(**arguments)
        self.count += 1
        if self.calls and self.count not in self.calls:
            return send(**arguments)
        if self.when == "after":
            with suppress(ClientError):
                send(**arguments)
        if self.then is not None:
            self.then()
        raise self.error


@dataclass
class BusyTable(_Wrapped):
    """Refuses the first so many reads."""

    error: Exception
    times: int
    reads: int = 0

    def _call(self, name: str, send: Callable[..., Any], arguments: Item) -> Any:  # noqa: ANN401 - as boto3 answers
        if name == "get_item":
            self.reads += 1
            if self.reads <= self.times:
                raise self.error
        return send(**arguments)


@dataclass
class MeanwhileTable(_Wrapped):
    """Lets somebody else act just before the first so many writes."""

    action: Callable[[], object]
    times: int = 1

    def _call(self, name: str, send: Callable[..., Any], arguments: Item) -> Any:  # noqa: ANN401 - as boto3 answers
        if name in _WRITES and self.times > 0:
            self.times -= 1
            self.action()
        return send(**arguments)
