"""Runs a real operation of fairlock up to its next request.

The operations are ordinary functions that ask the table, Step Functions and the clock. What they do
next depends on the answers so far only. So the model remembers the answers, and to go on runs the
function again from its start with them. The result of each run is remembered, too: a search over
many states runs the code once for each history.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final, TypeAlias, cast
from unittest.mock import patch

from fairlock.aws.executions import Delivery, Execution
from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.aws.retry import RetryBudget
from fairlock.clock import Alarm
from fairlock.errors import LockLost, LockStoreUnavailable
from fairlock.protocol import ceiling, claims, grants, leaving, waiters
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import NotHeld, Refusal, Released
from fairlock.protocol.schema import PARTITION_KEY
from fairlock.protocol.table_requests import Answer, Delete, Page, Query, Transaction, Update
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
from fairlock.store.context import LockContext
from fairlock.testing.interpreter import Item, Scope, changed
from fairlock.testing.manual_clock import START_MS
from tests.support import Operations

# Which function of fairlock made a request: the model's moves carry those names.

_REQUESTS: Final = {
    *("Update", "Delete", "Transaction", "Query"),
    *("list[Delete]", "tuple[Transaction, Holder]"),
}
"""What functions return that make requests."""
_OTHERS: Final = {"delete_waiter", "lock_and_oldest_waiters"}
"""A part of a hand-off, which gives it its name; and the poll of a Python client, which decides
nothing."""


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
        and value.__annotations__["return"] in _REQUESTS
        and name not in _OTHERS
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


Names: TypeAlias = dict[int, str]
"""The name of each request that was made since the names were cleared, by its identity."""


def _name_of(request: object, names: Names) -> str:
    """Fails for a request of an unknown function: the model would not know what it is.

    A transaction or a list that others have made of known parts is named after its first part.
    """
    if id(request) not in names:
        request = next(iter(_parts(request)), request)
    return names[id(request)]


def _parts(request: object) -> Sequence[object]:
    if isinstance(request, Transaction):
        return (request.state, request.other)
    return request if isinstance(request, list) else ()


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
        request = made[0] if isinstance(made, tuple) else made
        names.update({id(each): name for each in (request, *_parts(request))})
        return made

    return make


EPOCH_MS: Final = 1_000_000
"""The next epoch begins when every lease of this one is over."""
TICKS: Final = 8
"""Instants of an epoch. Time stands still between two ticks: a tick is a time-out that passes."""
_TICK_MS: Final = 2_000


def time_ms(instant: int) -> int:
    """The time of an instant; instants are counted over all epochs."""
    epoch, tick = divmod(instant, TICKS)
    return START_MS + epoch * EPOCH_MS + tick * _TICK_MS


def next_epoch(instant: int) -> int:
    """The first instant at which all leases of this one's epoch are over."""
    return (instant // TICKS + 1) * TICKS


_NOT_MADE: Final = {PUSH, DESCRIBE, END_HEARTBEAT, READ}
"""Calls whose payload is made by none of the protocol's functions."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A request to the world: what is asked, and the name of the function that asks it."""

    name: str
    method: str
    payload: Any


class _Suspended(BaseException):
    """No error: nothing in fairlock may catch it."""

    def __init__(self, call: Call) -> None:
        self.call = call


@dataclass(slots=True)
class RecordedWorld:
    """Replaces LockTable, Step Functions and the clock; answers from the record.

    Attributes:
        answers: to the first calls of the operation.
        instants: when the operation began, and when each of the answers came.
        offset_ms: added to the clock; differs between two runs of one owner, as it would.
        claim: what the claim of a call is that is answered at once.
        names: told by `naming` which function made each request.
        claims_of: the execution whose claims are moves; those of others are answered at once.
    """

    answers: Sequence[Any]
    instants: Sequence[int]
    offset_ms: int
    names: Names
    claims_of: str | None = None
    claim: Item = field(default_factory=dict)
    asked: int = 0

    def update(self, update: Update) -> Written | ConditionFailed:
        if self._is_claim(update.key):
            scope = Scope(self.claim, update.names, update.values)
            return Written(changed(update.change, scope), sent=0.0, date_ms=self.wall_ms())
        return cast("Written | ConditionFailed", self._ask("update", update))

    def delete(self, delete: Delete) -> bool:
        if self._is_claim(delete.key):
            return True
        return cast("bool", self._ask("delete", delete))

    def read(self, key: Mapping[str, Any]) -> Item:
        """The claim of a call that is no move stands."""
        if self._is_claim(key):
            return {PARTITION_KEY: key[PARTITION_KEY], **self.claim}
        return cast("Item", self._ask("read", key))

    def query(self, query: Query) -> Page:
        """The length of a queue decides nothing here; a workflow finds its place in its claim."""
        is_position = ":me" in query.values
        if query.attributes is not None and (self.claim or is_position):
            return Page(items=[], next=None, sent=0.0, date_ms=self.wall_ms())
        return cast("Page", self._ask("query", query))

    def wake_waiter(self, task_token: str, grant: Grant | Refusal) -> Delivery:
        return cast("Delivery", self._ask(PUSH, (task_token, grant)))

    def describe(self, execution_arn: str) -> Execution:
        return cast("Execution", self._ask(DESCRIBE, execution_arn))

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        is_lost = isinstance(end, LockLost)
        return cast("Delivery", self._ask(END_HEARTBEAT, (task_token, is_lost)))

    def __getattr__(self, method: str) -> Callable[[object], object]:
        """All other methods of LockTable, and `put`, which only a mutant calls."""
        return lambda payload: self._ask(method, payload)

    @property
    def aws_clock(self) -> RecordedWorld:
        return self

    def edges_ms(self) -> tuple[int, int]:
        """The time is known."""
        return self.wall_ms(), self.wall_ms()

    def now_ms(self) -> int:
        return self.wall_ms()

    def wall_ms(self) -> int:
        return time_ms(self.instants[self.asked]) + self.offset_ms

    def monotonic(self) -> float:
        return 0.0

    def wait(self, seconds: float) -> None:
        """Others move whenever they like; a pause adds nothing."""

    def alarm(self) -> Alarm:
        """No one waits on one: the model's operations are those of the store."""
        raise NotImplementedError

    def _ask(self, method: str, payload: object) -> object:
        if self.asked == len(self.answers):
            name = method if method in _NOT_MADE else _name_of(payload, self.names)
            raise _Suspended(Call(name, method, payload))
        self.asked += 1
        answer = self.answers[self.asked - 1]
        if isinstance(answer, Answer):
            return replace(answer, sent=0.0, date_ms=self.wall_ms())
        return answer

    def _is_claim(self, key: Mapping[str, Any]) -> bool:
        """Whether a request is no move: claims decide nothing about who holds a lock."""
        partition = str(key[PARTITION_KEY]["S"])
        of_execution = partition.startswith("EXECUTION#")
        return of_execution and partition != f"EXECUTION#{self.claims_of}"


Operation = Callable[[Operations, RecordedWorld], object]


def run_to_next_call(operation: Operation, world: RecordedWorld) -> object:
    """A `Call` that has no answer yet, or what the operation returns, or `LockStoreUnavailable`."""
    world.names.clear()
    context = LockContext(
        table=cast("LockTable", world),
        workflows=world,
        retry_budget=RetryBudget(clock=world, random=lambda: 0.5),
        random=lambda: 0.5,
    )
    try:
        return operation(Operations(context), world)
    except _Suspended as suspended:
        return suspended.call
    except LockStoreUnavailable as error:
        return error
