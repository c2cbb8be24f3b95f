"""Which function of fairlock made a request: the model's moves carry those names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Final
from unittest.mock import patch

from fairlock.protocol import ceiling, claims, grants, leaving, waiters
from fairlock.protocol.table_requests import Transaction
from fairlock.store import (
    acquire,
    administration,
    context,
    hand_off,
    keep_alive,
    queue,
    reap,
    release,
    seen_queue,
)

_NO_REQUESTS: Final = frozenset(
    {
        "claim_of",
        "read_claim",
        "place_in",
        "task_token_in",
        "has_ended",
        "is_fenced",
        "work_is_over",
    }
    | {"gave_back_before", "is_of_a_run_that_ended"}
    # A part of a transaction whose other part gives it its name.
    | {"still_reaped"}
    # The poll of a Python client: it decides nothing, and no operation of the model makes it.
    | {"lock_and_oldest_waiters"}
    # Parts of requests, and the rules that choose one.
    | {"beside_newer", "delete_waiter", "eviction", "next_step", "removal"}
)


def _places(
    makers: Sequence[ModuleType], users: Sequence[ModuleType]
) -> list[tuple[ModuleType, str]]:
    """Every place at which a function that makes a request is used under its name."""
    made_in = {module.__name__ for module in makers}
    return [
        (module, name)
        for module in users
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ in made_in
        and not name.startswith("_")
        and name not in _NO_REQUESTS
    ]


_PLACES: Final = _places(
    (grants, waiters, leaving, ceiling),
    (
        *(acquire, queue, release, administration, keep_alive, context),
        *(hand_off, leaving, seen_queue),
    ),
)
_PLACES_OF_CLAIMS: Final = [
    *_places((claims,), (acquire, keep_alive, release)),
    *_places((claims, waiters), (reap,)),
]
REQUEST_NAMES: Final = frozenset(name for _, name in _PLACES)
CLAIM_REQUEST_NAMES: Final = frozenset(name for _, name in _PLACES_OF_CLAIMS)
PUSH: Final = "wake_waiter"
DESCRIBE: Final = "describe"
END_HEARTBEAT: Final = "end_heartbeat"
READ: Final = "read"


class Names:
    """The names of the requests made since the last `forget`."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def forget(self) -> None:
        self._names.clear()

    def remember(self, name: str, made: object) -> None:
        request = made[0] if isinstance(made, tuple) else made
        self._names[id(request)] = name
        if isinstance(request, Transaction):
            self._names |= {id(request.state): name, id(request.other): name}

    def of(self, request: object) -> str:
        """Fails for a request of an unknown function: the model would not know what it is."""
        whole = self._names.get(id(request))
        if whole is None and isinstance(request, Transaction):
            return self._names[id(request.state)]
        return self._names[id(request)] if whole is None else whole


@contextmanager
def naming(names: Names) -> Iterator[None]:
    """While this is open, `names` knows all requests that the protocol makes."""
    with ExitStack() as stack:
        for module, name in (*_PLACES, *_PLACES_OF_CLAIMS):
            maker = getattr(module, name)
            stack.enter_context(patch.object(module, name, _remembering(names, name, maker)))
        yield


def _remembering(names: Names, name: str, maker: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(maker)
    def make(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the maker takes and makes
        made = maker(*args, **kwargs)
        names.remember(name, made)
        return made

    return make
