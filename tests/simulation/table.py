"""The table's semantics at the size of a simulation: an index by partition, and bytes of items.

Conditions and updates are those of `fairlock.testing.fake_table`, which is compared with moto's
DynamoDB request by request. What is added here makes no difference to any answer, but that a query
reads one partition instead of the whole table.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlock.protocol.schema import PARTITION_KEY, SORT_KEY
from fairlock.testing.fake_table import Key, MemoryTable
from fairlock.testing.interpreter import Item, Scope, holds
from tests.support.capacity import item_bytes

Seen = Callable[[Key, Item, Item], object]
"""Called with each write: the key, the item before it and after it; empty if there is none."""


def key_of(request: Mapping[str, Any]) -> Key:
    """The key of a request's item."""
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

    def in_partition(self, partition: str) -> list[str]:
        """The sort keys of a partition, in order."""
        return self._partitions.get(partition, [])

    def query(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - as boto3 takes it
        """The same, from one partition; adds the bytes that were read."""
        values = request["ExpressionAttributeValues"]
        names = request.get("ExpressionAttributeNames", {})
        partition, low = values[":pk"]["S"], values.get(":prefix", {"S": ""})["S"]
        is_range = "BETWEEN" in request["KeyConditionExpression"]
        high = values[":me"]["S"] if is_range else low + "\uffff"
        keys = self.in_partition(partition)
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
        """Removes an item, as TTL does."""
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
