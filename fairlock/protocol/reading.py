"""Items that Fairlock did not write: a typed error, and no KeyError that shows an owner_id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from fairlock.errors import LockItemMalformed
from fairlock.protocol.schema import PARTITION_KEY

_P = ParamSpec("_P")
_T = TypeVar("_T")


def reads_an_item(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Lets a function that reads an item raise `LockItemMalformed` for one of another shape.

    The cause is left out: an attribute's name, which a KeyError shows, may hold an owner_id.
    """

    @wraps(read)
    def read_or_raise(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except (LookupError, TypeError, ValueError, AttributeError):
            item = next(value for value in args if isinstance(value, Mapping))
            raise LockItemMalformed(_partition_key(item)) from None

    return read_or_raise


def _partition_key(item: Mapping[str, Any]) -> str:
    """The sort key is left out: that of a waiter or of a claim holds an owner_id."""
    key = item.get(PARTITION_KEY)
    return str(key.get("S", "?")) if isinstance(key, Mapping) else "?"
