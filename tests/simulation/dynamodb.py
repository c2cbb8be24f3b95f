"""DynamoDB: latency, the units of partitions, conflicts of transactions, and what a Query sees.

Sources, all of the DynamoDB developer guide: "Best practices for designing and using partition
keys" (1,000 write and 3,000 read units a second a partition), "Read and write capacity: on-demand"
(4,000 and 12,000 for a new table, so four partitions), "Working with items: capacity unit
consumption" (a false condition is charged, too), "DynamoDB transactions" (twice the units;
isolation from a Query is read-committed only; conflicts), "Error handling" (which errors were not
written). Burst capacity never exceeds what a partition can do, so none is modelled. A split for
heat is not supposed either.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.testing.fake_table import Key, MemoryTable, TransactionCanceledException, dated
from fairlock.testing.interpreter import Item
from tests.simulation.engine import Bucket, Engine, Quota
from tests.simulation.faults import Database, Network
from tests.support.faulty_table import WRITES, client_error, refusal
from tests.support.memory_tables import item_bytes

_NOT_CHARGED: Final = frozenset({"FilterExpression", "ProjectionExpression"})
"""What of a Query decides what it shows, not what it reads."""


def key_of(request: Mapping[str, Any]) -> Key:
    key = request["Key"] if "Key" in request else request["Item"]
    return key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]


@dataclass
class IndexedTable(MemoryTable):
    """The same table, which knows the items of each partition, and tells of each write.

    Attributes:
        sees: are told of each write: its key, the item before it and after it; empty if none is.
        sizes: the bytes of each item.
        stale: what a Query shows of an item instead: one that a transaction has just written.
    """

    sees: list[Callable[[Key, Item, Item], object]] = field(default_factory=list)
    sizes: dict[Key, int] = field(default_factory=dict)
    stale: dict[Key, Item] = field(default_factory=dict)
    _partitions: dict[str, dict[Key, Item]] = field(default_factory=dict)

    def units(self, write: Mapping[str, Any]) -> int:
        """The write units of an item as it is: one a KiB that has begun."""
        return -(-max(self.sizes.get(key_of(write), 0), 1) // 1024)

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """The same, from one partition; adds the bytes that were read."""
        items = self._partitions.get(partition_of(request), {})
        seen = {key: self.stale.get(key, item) for key, item in items.items()}
        # An item that is empty is not there yet: its transaction is not seen in full.
        table = MemoryTable({key: item for key, item in seen.items() if item}, self.page_size)
        charged = {name: value for name, value in request.items() if name not in _NOT_CHARGED}
        read = table.query(**charged)["Items"]
        size = sum(self.sizes[key_of({"Item": item})] for item in read)
        return {**table.query(**request), "BytesRead": size}

    def remove(self, key: Key) -> None:
        self._changed(key, self.items.pop(key), {})

    def _write(self, kind: str, write: Mapping[str, Any]) -> None:
        key = key_of(write)
        old = self.items.get(key, {})
        super()._write(kind, write)
        new = self.items.get(key, {})
        if new is not old:
            self._changed(key, old, new)

    def _changed(self, key: Key, old: Item, new: Item) -> None:
        partition = self._partitions.setdefault(key[0], {})
        if new:
            self.sizes[key], partition[key] = item_bytes(new), new
        elif old:
            del self.sizes[key], partition[key]
        if not partition:
            del self._partitions[key[0]]
        for see in self.sees:
            see(key, old, new)


_MEDIAN_SECONDS: Final = 0.004
_SPREAD: Final = 0.4
_TRANSACTION_SECONDS: Final = 0.008
_SEEN_IN_PART_SECONDS: Final = 0.02
_UNIT_BYTES: Final = 4_096
WRITE_DOLLARS: Final = 0.625e-6
READ_DOLLARS: Final = 0.125e-6
"""A unit (aws.amazon.com/dynamodb/pricing/on-demand)."""
_THROTTLED: Final = "ProvisionedThroughputExceededException"
_CONFLICT: Final = "TransactionConflictException"

Answer = dict[str, Any] | ClientError
Reply = Callable[[Answer, float], object]
"""Takes an answer, and the seconds until it may leave."""


class DynamoDb:
    """One table, as its front ends serve it.

    Attributes:
        requests: what it has done, refused requests included.
        write_units: of all writes, false conditions included.
        out_until: until then it answers nothing.
    """

    def __init__(self, engine: Engine, network: Network, database: Database) -> None:
        self._engine, self._network, self._database = engine, network, database
        self.table = IndexedTable()
        self.requests = Counter[str]()
        self.write_units = self.read_units = 0
        self._in_transaction: Counter[Key] = Counter()
        self.scale(1)
        self.out_until = -math.inf

    @property
    def cents(self) -> float:
        """What is charged for an on-demand table in us-east-1."""
        return 100 * (self.write_units * WRITE_DOLLARS + self.read_units * READ_DOLLARS)

    def scale(self, scale: float) -> None:
        """Gives each partition only this share of its units a second.

        They come back evenly, and none is kept for longer than a second.
        """
        given = self._database
        rates: dict[tuple[str, int], float] = {
            (kind, number): rate
            for kind, rate in (("w", given.write_units), ("r", given.read_units))
            for number in range(given.partitions)
        }
        if given.slow_units is not None:
            rates |= {(kind, 0): given.slow_units for kind in "wr"}
        self._buckets = {
            key: Bucket(self._engine, Quota(rate * scale, rate * scale))
            for key, rate in rates.items()
        }

    def latency(self) -> float:
        """Seconds of one request there, or of one answer back; half of the usual round trip."""
        return self._engine.random.lognormvariate(math.log(_MEDIAN_SECONDS / 2), _SPREAD)

    def is_out(self) -> bool:
        return self._engine.now < self.out_until

    def serve(self, name: str, request: Mapping[str, Any], reply: Reply) -> None:
        """Does a request that has arrived."""
        if name == "transact_write_items":
            self._transact(request, reply)
        else:
            self.requests[name] += 1
            reply(self._answer(name, request), 0.0)

    def _answer(self, name: str, request: Mapping[str, Any]) -> Answer:
        chance, errors = self._engine.random.random(), self._database.server_errors
        if chance < errors:
            self._engine.faults["server errors"] += 1
            if chance >= errors / 2:
                self._done(name, request)
            return client_error("InternalServerError", 500)
        if chance < errors + self._database.throttles:
            return self._refused(name, request, _THROTTLED)
        return self._done(name, request)

    def _transact(self, request: Mapping[str, Any], reply: Reply) -> None:
        """A transaction takes some time, in which requests for its items meet a conflict."""
        name, writes = "transact_write_items", _writes_of(request)
        refused = ""
        if not self._has_units("w", writes[0], sum(map(self.table.units, writes)) * 2):
            refused = _THROTTLED
        elif any(self._in_transaction[key_of(write)] for write in writes):
            refused = _CONFLICT
        if refused:
            self.requests[name] += 1
            reply(self._refused(name, request, refused), 0.0)
            return
        for write in writes:
            self._in_transaction[key_of(write)] += 1
        seconds = self._engine.random.uniform(0.5, 1.5) * _TRANSACTION_SECONDS
        self._engine.after(seconds, self._commit, request, reply)

    def _commit(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Ends a transaction: all of its writes, or none.

        A Query may see some of them before the others, for a moment. The answer leaves later: what
        was answered is seen by all who ask then, and a waiter's `confirm_join` relies on that.
        """
        settles, writes = 0.0, _writes_of(request)
        keys = [key_of(write) for write in writes]
        before = {key: self.table.items.get(key, {}) for key in keys}
        units = [self.table.units(write) for write in writes]
        self.requests["transact_write_items"] += 1
        answer = self._dated("transact_write_items", request)
        for key, write, old in zip(keys, writes, units, strict=True):
            self.write_units += 2 * max(old, self.table.units(write))
            self._in_transaction[key] -= 1
            if not self._in_transaction[key]:
                del self._in_transaction[key]
        if not isinstance(answer, ClientError):
            for key in keys[1:]:
                if before[key] is not self.table.items.get(key, {}):
                    self.table.stale[key] = before[key]
                    later = self._engine.random.random() * _SEEN_IN_PART_SECONDS
                    self._engine.after(later, self.table.stale.pop, key, None)
                    settles = max(settles, later)
        reply(answer, settles)

    def _done(self, name: str, request: Mapping[str, Any]) -> Answer:
        if name in WRITES:
            if self._in_transaction[key_of(request)]:
                return self._refused(name, request, _CONFLICT)
            before = self.table.units(request)
            if not self._has_units("w", request, before):
                return self._refused(name, request, _THROTTLED)
            answer = self._dated(name, request)
            self.write_units += max(before, self.table.units(request))
            return answer
        if not self._has_units("r", request, 1):
            return self._refused(name, request, _THROTTLED)
        answer = self._dated(name, request)
        read = 0 if isinstance(answer, ClientError) else answer.pop("BytesRead", None)
        size = self.table.sizes.get(key_of(request), 0) if read is None else read
        self.read_units += max(1, -(-size // _UNIT_BYTES))
        return answer

    def _dated(self, name: str, request: Mapping[str, Any]) -> Answer:
        off = self._engine.random.uniform(-self._network.front_ends, self._network.front_ends)
        try:
            return dated(
                lambda: getattr(self.table, name)(**request), int((self._engine.now + off) * 1000)
            )
        except ClientError as refused:
            return refused

    def _has_units(self, kind: str, request: Mapping[str, Any], units: int) -> bool:
        number = zlib.crc32(partition_of(request).encode()) % self._database.partitions
        return self._buckets[kind, number].overdraw(units)

    def _refused(self, name: str, request: Mapping[str, Any], code: str) -> ClientError:
        """A request that was certainly not done."""
        self._engine.faults["throttled" if code == _THROTTLED else "conflicts"] += 1
        if name != "transact_write_items":
            return client_error(code)
        response: Any = refusal("TransactionCanceledException").response
        reason = code.removesuffix("Exception")
        response["CancellationReasons"] = [{"Code": reason} for _ in request["TransactItems"]]
        return TransactionCanceledException(response, name)


def _writes_of(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [next(iter(write.values())) for write in request["TransactItems"]]


def partition_of(request: Mapping[str, Any]) -> str:
    """The partition key of a request; of a transaction, that of its first write."""
    if "TransactItems" in request:
        return key_of(_writes_of(request)[0])[0]
    if "KeyConditionExpression" in request:
        partition: str = request["ExpressionAttributeValues"][":pk"]["S"]
        return partition
    return key_of(request)[0]
