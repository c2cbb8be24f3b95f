"""A network that holds writes back and keeps copies of them: they land late, in random order.

    caller                       network                            table
      │ write ─────────────────────┼──────────────────────────────▶ answered
      │                            └┄┄┄┄ a copy ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ lands up to 60 s later
      │ write ─────────────────────┤
      │ ◀──── time-out, 1.5 s ─────┘┄┄┄┄ held back ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄▶ lands up to 60 s later
      │ the same bytes again ───────────────────────────────────────▶ answered

botocore sends a request three times at most; then the caller is told that the outcome is unknown.
The table remembers the request tokens of transactions that happened, as DynamoDB does for ten
minutes, longer than any copy is on its way. A cancelled transaction leaves no token.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock.aws.lock_table import Cancelled, ConditionFailed, LockTable, Written
from fairlock.protocol.table_requests import Delete, Item, Transaction, Update
from fairlock.testing.fake_table import Key, MemoryTable
from tests.model.replay import Names
from tests.support import FakeClock

READ_TIMEOUT_SECONDS: Final = 1.5
LATEST_SECONDS: Final = 60
_DELAYS: Final = (0.2, 2, 10, 25, LATEST_SECONDS)
_SENDINGS: Final = 3
_COPIED: Final = 0.5
_HELD_BACK: Final = 0.04
_LOST_REPLY: Final = 0.25
"""Of the sendings that get no answer: it happened at once."""
_WRITES: Final = frozenset({"update_item", "delete_item", "transact_write_items"})
Items = Mapping[Key, Item]


@dataclass(eq=False, slots=True, kw_only=True)
class Call:
    """One call of an operation.

    Attributes:
        owner_id: whose it is; empty for the reaper's, and for a release by force.
        overtaken: whether its caller has given it up and made another, while it stalled.
        interrupted: whether others have acted between two of its requests.
    """

    kind: str
    began_ms: int
    owner_id: str = ""
    execution_arn: str | None = None
    overtaken: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One write on its way.

    Attributes:
        name: of the function of the protocol that made it.
        sent_ms: when it was sent first.
        queue: the waiters as its call has read them last.
        queue_read_ms: when that was.
        late: whether its caller has been answered, or has given it up.
    """

    name: str
    operation: str
    request: Mapping[str, Any] = field(repr=False)
    sent_ms: int
    call: Call
    queue: tuple[Item, ...] = field(default=(), repr=False)
    queue_read_ms: int = 0
    late: bool = False


Mutation = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Changes the request that a function of this name made: how a protection is switched off."""
Judge = Callable[[Sending, Items, Items], None]
"""Is told of each write that happened, with the table before and after it."""


@dataclass
class Landings:
    """Counts of late writes, by the names of their functions."""

    sent: Counter[str] = field(default_factory=Counter)
    late: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    def add(self, other: Landings) -> None:
        """Adds those of another run."""
        for mine, theirs in (
            (self.sent, other.sent),
            (self.late, other.late),
            (self.changed, other.changed),
        ):
            mine.update(theirs)


@dataclass
class LateNetwork:
    """Has the methods of a boto3 client, and passes requests on to a table in memory.

    Attributes:
        calm: whether nothing goes wrong from now on.
        call: which call sends at this moment.
        name: of the function that made the write that is sent next.
        stall: is called before each request; others may act in it.
        mutate: changes the writes, if there is a wrong protocol to be found.
    """

    table: MemoryTable
    clock: FakeClock
    random: Random
    judge: Judge
    stall: Callable[[], None]
    mutate: Mutation | None = None
    landings: Landings = field(default_factory=Landings)
    calm: bool = False
    call: Call = field(default_factory=lambda: Call(kind="none", began_ms=0))
    name: str = ""
    _copies: list[tuple[int, int, Sending]] = field(default_factory=list)
    _numbers: int = 0
    _queue: tuple[Call, tuple[Item, ...], int] | None = None

    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.table, operation)
        if operation in _WRITES:
            return lambda **request: self._write(operation, request)
        if operation in ("get_item", "query"):
            return lambda **request: self._read(attribute, request)
        return attribute

    def land_due(self) -> None:
        """Lands the copies that have been on their way for long enough."""
        while self._copies and self._copies[0][0] <= self.clock.now_ms:
            _, _, sending = heapq.heappop(self._copies)
            self.landings.late[sending.name] += 1
            try:
                changed = self._apply(sending)[1]
            except ClientError:
                continue
            self.landings.changed[sending.name] += changed

    def _read(self, read: Callable[..., Any], request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        call = self.call
        self._pass_time()
        self.call = call
        answer = read(**request)
        if "Items" in answer and ":prefix" in request["ExpressionAttributeValues"]:
            items = tuple(item for item in answer["Items"] if "sk" in item)
            self._queue = (call, items, self.clock.now_ms)
        return answer

    def _write(self, operation: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        call, name = self.call, self.name
        if self.mutate is not None:
            request = self.mutate(name, request)
        self._pass_time()
        self.call = call
        read_by, queue, read_ms = self._queue or (None, (), 0)
        if read_by is not call:
            queue, read_ms = (), 0
        sending = Sending(
            name=name,
            operation=operation,
            request=request,
            sent_ms=self.clock.now_ms,
            call=call,
            queue=queue,
            queue_read_ms=read_ms,
        )
        self.landings.sent[name] += 1
        failures = self._failures()
        for number in range(failures):
            if self.random.random() < _LOST_REPLY:
                self._try(sending)
            else:
                self._keep(sending)
            self.clock.advance(READ_TIMEOUT_SECONDS)
            self.land_due()
            if number + 1 == _SENDINGS:
                raise ReadTimeoutError(endpoint_url="https://dynamodb")
            call.interrupted = True
        if not self.calm and self.random.random() < _COPIED:
            self._keep(sending)
        try:
            return self._apply(sending)[0]
        except ClientError as error:
            if failures:
                error.response["ResponseMetadata"] = {"RetryAttempts": 1}  # type: ignore[typeddict-item]  # the rest is not read
            raise

    def _failures(self) -> int:
        """How many sendings of a request get no answer."""
        if self.calm or self.random.random() >= _HELD_BACK:
            return 0
        return self.random.choice((1, 1, 2, _SENDINGS, _SENDINGS))

    def _pass_time(self) -> None:
        self.clock.advance(self.random.uniform(0.003, 0.02))
        self.land_due()
        self.stall()

    def _keep(self, sending: Sending) -> None:
        self._numbers += 1
        due_ms = self.clock.now_ms + round(
            self.random.choice(_DELAYS) * self.random.random() * 1000
        )
        heapq.heappush(self._copies, (due_ms, self._numbers, replace(sending, late=True)))

    def _try(self, sending: Sending) -> None:
        """A write that happens or not; its reply is lost."""
        try:
            self._apply(sending)
        except ClientError:
            return

    def _apply(self, sending: Sending) -> tuple[Any, bool]:
        """The answer of the table, and whether it was changed."""
        before = dict(self.table.items)
        answer = getattr(self.table, sending.operation)(**sending.request)
        after = self.table.items
        self.judge(sending, before, after)
        keys = before.keys() | after.keys()
        return answer, any(
            before.get(key) is not after.get(key) and before.get(key) != after.get(key)
            for key in keys
        )


class NamedTable(LockTable):
    """Tells the network who made the request that is sent next."""

    def __init__(self, network: LateNetwork, names: Names, **more: Any) -> None:  # noqa: ANN401 - as LockTable takes
        super().__init__(network, "locks", **more)  # type: ignore[arg-type]  # it has its methods
        self._network, self._names = network, names

    def update(self, update: Update) -> Written | ConditionFailed:
        """See `LockTable`."""
        self._network.name = self._names.of(update)
        return super().update(update)

    def transact(self, transaction: Transaction) -> Written | Cancelled:
        """See `LockTable`."""
        self._network.name = self._names.of(transaction)
        return super().transact(transaction)

    def delete(self, delete: Delete) -> bool:
        """See `LockTable`."""
        self._network.name = self._names.of(delete)
        return super().delete(delete)

    def delete_all(self, deletes: Sequence[Delete]) -> tuple[Delete, ...]:
        """See `LockTable`."""
        self._network.name = "clear_waiters"
        return super().delete_all(deletes)
