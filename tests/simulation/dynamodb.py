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
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.testing.fake_table import Key, MemoryTable, TransactionCanceledException, dated
from fairlock.testing.interpreter import Item, Scope, holds
from tests.simulation.engine import START, Bucket, Engine, Quota
from tests.simulation.faults import Database, Network
from tests.support.faulty_table import client_error
from tests.support.memory_tables import item_bytes

Seen = Callable[[Key, Item, Item], object]
"""Called with each write: the key, the item before it and after it; empty if there is none."""


def key_of(request: Mapping[str, Any]) -> Key:
    key = request["Key"] if "Key" in request else request["Item"]
    return key[PARTITION_KEY]["S"], key[SORT_KEY]["S"]


@dataclass
class IndexedTable(MemoryTable):
    """The same table, whose partitions are sorted lists.

    Attributes:
        sees: are told of each write, in order.
        sizes: the bytes of each item.
        stale: what a Query shows of an item instead: one that a transaction has just written.
    """

    sees: list[Seen] = field(default_factory=list)
    sizes: dict[Key, int] = field(default_factory=dict)
    stale: dict[Key, Item] = field(default_factory=dict)
    _partitions: dict[str, list[str]] = field(default_factory=dict)

    def units(self, write: Mapping[str, Any]) -> int:
        """The write units of an item as it is: one a KiB that has begun."""
        return -(-max(self.sizes.get(key_of(write), 0), 1) // 1024)

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """The same, from one partition; adds the bytes that were read."""
        values = request["ExpressionAttributeValues"]
        names = request.get("ExpressionAttributeNames", {})
        partition, low = values[":pk"]["S"], values.get(":prefix", {"S": ""})["S"]
        is_range = "BETWEEN" in request["KeyConditionExpression"]
        high = values[":me"]["S"] if is_range else low + "\uffff"
        keys = self._partitions.get(partition, [])
        first = bisect_left(keys, low)
        if "ExclusiveStartKey" in request:
            after = request["ExclusiveStartKey"][SORT_KEY]["S"]
            first = max(first, bisect_left(keys, after + "\0"))
        most = min(request.get("Limit", self.page_size), self.page_size)
        last, read, found = first, 0, []
        while last < len(keys) and keys[last] <= high and last - first < most:
            key = partition, keys[last]
            last += 1
            item = self.stale.get(key, self.items[key])
            if not item:
                continue  # Its transaction is not seen in full.
            read += self.sizes[key]
            only = request.get("FilterExpression")
            if only is None or holds(only, Scope(item, names, values)):
                found.append(self._shown(request, item))
        answer: dict[str, Any] = {"Items": found, "Count": len(found), "BytesRead": read}
        if last < len(keys) and keys[last] <= high:
            answer["LastEvaluatedKey"] = {
                PARTITION_KEY: {"S": partition},
                SORT_KEY: {"S": keys[last - 1]},
            }
        return answer

    def remove(self, key: Key) -> None:
        self._changed(key, self.items.pop(key), {})

    @staticmethod
    def _shown(request: Mapping[str, Any], item: Item) -> Item:
        if "ProjectionExpression" not in request:
            return dict(item)
        names = request["ExpressionAttributeNames"]
        wanted = {names[name] for name in request["ProjectionExpression"].split(", ")}
        return {name: value for name, value in item.items() if name in wanted}

    def _holds(self, write: Mapping[str, Any]) -> bool:
        """The same without the check of placeholders, which tests of the table make."""
        if "ConditionExpression" not in write:
            return True
        names = write.get("ExpressionAttributeNames", {})
        values = write.get("ExpressionAttributeValues", {})
        item = self.items.get(key_of(write), {})
        return holds(write["ConditionExpression"], Scope(item, names, values))

    def _write(self, kind: str, write: Mapping[str, Any]) -> None:
        key = key_of(write)
        old = self.items.get(key, {})
        super()._write(kind, write)
        new = self.items.get(key, {})
        if new is not old:
            self._changed(key, old, new)

    def _changed(self, key: Key, old: Item, new: Item) -> None:
        partition, sort_key = key
        if new:
            self.sizes[key] = item_bytes(new)
            if not old:
                insort(self._partitions.setdefault(partition, []), sort_key)
        elif old:
            del self.sizes[key]
            keys = self._partitions[partition]
            del keys[bisect_left(keys, sort_key)]
            if not keys:
                del self._partitions[partition]
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
_WRITES: Final = frozenset({"update_item", "put_item", "delete_item", "transact_write_items"})
_THROTTLED: Final = "ProvisionedThroughputExceededException"
_CONFLICT: Final = "TransactionConflictException"

Answer = dict[str, Any] | ClientError


@dataclass
class Bill:
    """What DynamoDB has done, and charges for.

    Attributes:
        requests: by their names, refused ones included.
        write_units: of all writes, false conditions included.
        throttled: requests that were refused for want of units.
        conflicts: requests that met a transaction.
        server_errors: requests that were answered with a 500.
    """

    requests: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: int = 0
    throttled: int = 0
    conflicts: int = 0
    server_errors: int = 0

    @property
    def cents(self) -> float:
        """What is charged for an on-demand table in us-east-1."""
        return 100 * (self.write_units * WRITE_DOLLARS + self.read_units * READ_DOLLARS)


class _Units(Bucket):
    """Units of one kind of one partition: at most those of a second, which come back evenly."""

    def take_all(self, units: int) -> bool:
        """A request that began is done: the next ones pay for what it took too much."""
        self._refill()
        if self._left <= 0:
            return False
        self._left -= units
        return True


class DynamoDb:
    """One table, as its front ends serve it."""

    def __init__(self, engine: Engine, network: Network, database: Database) -> None:
        self._engine, self._network, self._database = engine, network, database
        self.table = IndexedTable()
        self.bill = Bill()
        self._in_transaction: Counter[Key] = Counter()
        self._rates = {
            (kind, number): float(rate)
            for kind, rate in (("w", database.write_units), ("r", database.read_units))
            for number in range(database.partitions)
        }
        if database.slow_units is not None:
            self._rates |= {(kind, 0): database.slow_units for kind in "wr"}
        self.scale(1)
        self.out_until = -math.inf
        """Until then it answers nothing, beside the outages of the scenario."""

    def scale(self, scale: float) -> None:
        """Gives each partition only this share of its units a second."""
        self._buckets = {
            key: _Units(self._engine, Quota(rate * scale, rate * scale))
            for key, rate in self._rates.items()
        }

    def latency(self) -> float:
        """Seconds of one request there, or of one answer back; half of the usual round trip."""
        return self._engine.random.lognormvariate(math.log(_MEDIAN_SECONDS / 2), _SPREAD)

    def is_out(self) -> bool:
        since = self._engine.now - START
        return self._engine.now < self.out_until or any(
            begins <= since < ends for begins, ends in self._database.outages
        )

    def serve(self, name: str, request: Mapping[str, Any]) -> Answer:
        """Does a request that has arrived. Called within the thread that sent it, or for a copy.

        A transaction takes some time, in which requests for its items meet a conflict.
        """
        chance = self._engine.random.random()
        self.bill.requests[name] += 1
        fails = chance < self._database.server_errors
        self.bill.server_errors += fails
        if fails and chance < self._database.server_errors / 2:
            return client_error("InternalServerError", 500)
        if not fails and chance < self._database.server_errors + self._database.throttles:
            return self._refused(name, request, _THROTTLED)
        answer = self._serve(name, request)
        return client_error("InternalServerError", 500) if fails else answer

    def transact(self, request: Mapping[str, Any]) -> float | Answer:
        """Begins a transaction; the seconds until `commit` may be called, or why not."""
        writes = _writes_of(request)
        if not self._has_units("w", writes[0], sum(map(self.table.units, writes)) * 2):
            return self._refused("transact_write_items", request, _THROTTLED)
        if any(self._in_transaction[key_of(write)] for write in writes):
            return self._refused("transact_write_items", request, _CONFLICT)
        for write in writes:
            self._in_transaction[key_of(write)] += 1
        return self._engine.random.uniform(0.5, 1.5) * _TRANSACTION_SECONDS

    def commit(self, request: Mapping[str, Any]) -> tuple[Answer, float]:
        """Ends a transaction: all of its writes, or none.

        Returns:
            The answer, and the seconds until it leaves: only then does each Query see all writes.
        """
        settles = 0.0
        writes = _writes_of(request)
        keys = [key_of(write) for write in writes]
        before = {key: self.table.items.get(key, {}) for key in keys}
        units = [self.table.units(write) for write in writes]
        self.bill.requests["transact_write_items"] += 1
        answer = self._dated("transact_write_items", request)
        for key, write, old in zip(keys, writes, units, strict=True):
            self.bill.write_units += 2 * max(old, self.table.units(write))
            self._in_transaction[key] -= 1
            if not self._in_transaction[key]:
                del self._in_transaction[key]
        if not isinstance(answer, ClientError):
            # A Query may see some of its writes before the others, for a moment.
            for key in keys[1:]:
                if before[key] is not self.table.items.get(key, {}):
                    self.table.stale[key] = before[key]
                    later = self._engine.random.random() * _SEEN_IN_PART_SECONDS
                    self._engine.after(later, self.table.stale.pop, key, None)
                    settles = max(settles, later)
        return answer, settles

    def _serve(self, name: str, request: Mapping[str, Any]) -> Answer:
        if name in _WRITES:
            if self._in_transaction[key_of(request)]:
                return self._refused(name, request, _CONFLICT)
            if not self._has_units("w", request, self.table.units(request)):
                return self._refused(name, request, _THROTTLED)
            before = self.table.units(request)
            answer = self._dated(name, request)
            self.bill.write_units += max(before, self.table.units(request))
            return answer
        if not self._has_units("r", request, 1):
            return self._refused(name, request, _THROTTLED)
        answer = self._dated(name, request)
        read = 0 if isinstance(answer, ClientError) else answer.pop("BytesRead", None)
        size = self.table.sizes.get(key_of(request), 0) if read is None else read
        self.bill.read_units += max(1, -(-size // _UNIT_BYTES))
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
        return self._buckets[kind, number].take_all(units)

    def _refused(self, name: str, request: Mapping[str, Any], code: str) -> ClientError:
        """A request that was certainly not done."""
        if code == _THROTTLED:
            self.bill.throttled += 1
        else:
            self.bill.conflicts += 1
        if name != "transact_write_items":
            return client_error(code)
        reason = "ProvisionedThroughputExceeded" if code == _THROTTLED else "TransactionConflict"
        reasons = [{"Code": reason} for _ in request["TransactItems"]]
        response: Any = {
            "Error": {"Code": "TransactionCanceledException", "Message": code},
            "CancellationReasons": reasons,
            "ResponseMetadata": {"HTTPStatusCode": 400, "RetryAttempts": 0},
        }
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
