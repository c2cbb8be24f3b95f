"""The lock's name, from the arguments of a call."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from fairlock import InvalidRequest, LockClient, locked
from tests.support import LambdaContextStub
from tests.unit.client.doubles import Table


@dataclass
class Order:
    number: int
    lines: list[str]


class Opaque:
    """Has no text of its own."""


class Queue(str, Enum):  # noqa: UP042 - a StrEnum has the same text everywhere
    """A name whose text, as `str` and `format` make it, is another: `Queue.ORDERS`."""

    ORDERS = "orders"


def handle(event: dict[str, Any], context: object = None, *more: str, **options: str) -> None:
    """Takes whatever comes."""


def names_in(table: Table) -> set[str]:
    return {pk.removeprefix("LOCK#") for pk, _ in table.memory.items}


@pytest.mark.parametrize(
    ("template", "call", "name"),
    [
        ("nightly", lambda f: f({}), "nightly"),
        ("orders/{event[detail][id]}", lambda f: f({"detail": {"id": 7}}), "orders/7"),
        ("{event.number:05d}/{event.lines[0]}", lambda f: f(Order(7, ["a"])), "00007/a"),
        ("{event}", lambda f: f(UUID(int=7)), str(UUID(int=7))),
        ("{event}-{context}", lambda f: f(event=1, context=2), "1-2"),
        ("{more[1]}/{region}", lambda f: f({}, 0, "a", "b", region="eu"), "b/eu"),
        ("{{{event}}}", lambda f: f(1), "{1}"),
        ("{event}", lambda f: f(7.0), "7"),
        ("{event}", lambda f: f(Decimal("7.00")), "7"),
        ("{event}", lambda f: f(Decimal("1E+2")), "100"),
        ("{event}", lambda f: f(-0.0), "0"),
        ("{event}", lambda f: f(Decimal("2.50")), "2.5"),
        ("{event}", lambda f: f(2.5), "2.5"),
        ("{event:.2f}", lambda f: f(7.0), "7.00"),
        (lambda event, **_: f"made/{event['id']}", lambda f: f({"id": 3}), "made/3"),
        # A name of a str enum is the same in a template as elsewhere.
        ("{event}", lambda f: f(Queue.ORDERS), "orders"),
        ("{event:_>8}", lambda f: f(Queue.ORDERS), "__orders"),
        (Queue.ORDERS, lambda f: f({}), "orders"),
        (lambda event, **_: event, lambda f: f(Queue.ORDERS), "orders"),
        ("{event!s}", lambda f: f(Queue.ORDERS), "Queue.ORDERS"),
    ],
)
def test_fields_are_filled_as_by_format(
    template: str | Callable[..., str],
    call: Callable[[Callable[..., None]], None],
    name: str,
    locks: LockClient,
    table: Table,
) -> None:
    call(locked(template, client=locks)(handle))
    assert names_in(table) == {name}


@pytest.mark.parametrize(
    ("template", "event", "why"),
    [
        (lambda *_, **__: "", 7, "name: must be a string of 1 to 512 bytes"),
        ("orders/{event[detail][id]}", {"detail": {}}, "KeyError: 'id' is missing: pass it"),
        ("orders/{event[id][0]}", {"id": 7}, "TypeError"),
        ("orders/{event.number}", {}, "AttributeError"),
        ("orders/{event[number]}", [1], "TypeError"),
        ("orders/{event[3]}", [1], "IndexError"),
        ("orders/{event:05d}", "seven", "ValueError"),
        ("orders/{event[id]}", {"id": None}, "a value is None"),
        ("orders/{event}", Opaque(), "ValueError: Opaque has no text of its own, only an address"),
        ("orders/{event!r}", Opaque(), "ValueError: Opaque has no text of its own, only an add"),
        ("orders/{event!r}", None, "event is None"),
        ("orders/{event}", math.nan, "a number is not finite"),
        ("orders/{event}", [7], "ValueError: list is not one value: name an element of it"),
        ("orders/{event}", "", "event is empty: pass its value"),
        ("orders/{event[id]}", {"id": ""}, "a value is empty"),
        (
            "o/{event.detail.id}",
            {"detail": {"id": 7}},
            r"'detail': write \{event\[detail\]\[id\]\}",
        ),
        ("orders/{event}", Order(7, [Opaque()]), "a value has no text of its own"),  # type: ignore[list-item]  # odd
        ("orders/{event}", handle, "a value has no text of its own, only an address"),
        ("orders/{event}", {"id": 7}, "ValueError: dict has its elements in any order"),
        ("orders/{event[tags]}", {"tags": {"a", "b"}}, "set has its elements in any order"),
    ],
)
def test_a_name_that_cannot_be_formed_is_refused_before_anything_is_written(
    template: Any,  # noqa: ANN401 - a name as of `locked`
    event: object,
    why: str,
    locks: LockClient,
    table: Table,
) -> None:
    with pytest.raises(InvalidRequest, match=why) as refused:
        locked(template, client=locks)(handle)(event)  # type: ignore[arg-type]  # odd events
    assert refused.value.field == "name"
    assert table.requests == []


def positional(order_id: int) -> None:
    """Has one parameter."""


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("orders/{order}", "its fields must be parameters of the function"),
        ("orders/{}", "its fields must be parameters of the function"),
        ("orders/{0}", "its fields must be parameters of the function"),
        ("orders/{order_id", "must be a format string"),
        (7, "must be a string, or a function"),
    ],
)
def test_a_wrong_template_is_refused_when_it_decorates(
    template: Any,  # noqa: ANN401 - odd templates
    why: str,
    locks: LockClient,
) -> None:
    with pytest.raises(InvalidRequest, match=why):
        locked(template, client=locks)(positional)


def test_without_a_name_the_lock_is_called_as_the_function(locks: LockClient, table: Table) -> None:
    @locked(client=locks)
    def rebuild(part: int) -> int:
        assert table.state(own).held == 1
        return part

    own = f"{__name__}.{rebuild.__qualname__}"
    assert (rebuild(7), rebuild(part=8)) == (7, 8)
    assert names_in(table) == {own}


def test_without_parentheses_a_function_is_decorated_and_not_taken_for_a_name(
    locks: LockClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["fairlock.decorator.locked"]
    monkeypatch.setattr(module, "default_client", lambda **_kind: locks)
    ran: list[object] = []

    async def later() -> None: ...

    @locked
    def rebuild(job: Callable[[], object]) -> str:
        """Rebuilds."""
        ran.append(job)
        return "done"

    assert rebuild(dict) == "done", "a function as its only argument is decorated by no one"
    assert ran == [dict]
    assert rebuild.__doc__ == "Rebuilds."
    assert names_in(table) == {f"{__name__}.{rebuild.__qualname__}"}
    assert inspect.iscoroutinefunction(locked(later))


def test_a_function_that_makes_names_is_told_from_work(locks: LockClient, table: Table) -> None:
    def name_of(event: int) -> str:
        return f"made/{event}"

    for decorator in (locked(name=name_of), locked(lambda event: f"made/{event}")):
        assert callable(decorator)
    assert locked(name_of, client=locks)(lambda event: event)(3) == 3
    assert locked(name=name_of, client=locks)(lambda event: event)(4) == 4
    assert names_in(table) == {"made/3", "made/4"}


def test_a_name_that_other_programs_have_too_is_refused(locks: LockClient) -> None:
    def handler(event: object, context: object) -> None: ...

    handle_locked = locked(client=locks)(handler)
    with pytest.raises(InvalidRequest, match="name: must be given for a Lambda handler"):
        handle_locked({}, LambdaContextStub())
    handler.__module__ = "__main__"
    with pytest.raises(InvalidRequest, match="name: must be given for a function of the program"):
        locked(handler)


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_what_is_no_function_yet_is_refused(kind: Callable[[object], Callable[..., None]]) -> None:
    with pytest.raises(InvalidRequest, match="below @staticmethod and @classmethod"):
        locked(kind(handle))
