"""One item of a table and its conditional writes; `leasehold.optimistic` is built on it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

from leasehold.dynamodb.failures import error_code, may_pass, was_not_written, was_repeated
from leasehold.dynamodb.retry import RetryBudget, retry
from leasehold.errors import InvalidRequest, OutcomeUnknown, shorten
from leasehold.protocol import versions

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Item = dict[str, Any]

_WRITE_ID_BYTES: Final = 8
_DESERIALIZER: Final = TypeDeserializer()
_CONDITION_FAILED: Final = "ConditionalCheckFailedException"


@dataclass(frozen=True, slots=True)
class Written:
    """A write happened. `item` is the item after it; None if the write deleted it."""

    item: Item | None


class VersionedItem:
    """One item of a table: a read, and writes on condition that the item is as it was seen.

    Args:
        table: a boto3 Table resource.
        key: the item's whole primary key.
        version_attribute: where the item keeps its version.
        retry_budget: how long to go on when DynamoDB does not answer.
    """

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Any],
        version_attribute: str,
        retry_budget: RetryBudget | None,
    ) -> None:
        _check(key, version_attribute)
        self._table = table
        self._key = dict(key)
        self._version = version_attribute
        self._write_id = versions.write_id_attribute(version_attribute)
        self.retry_budget = retry_budget or RetryBudget()

    @property
    def shown_key(self) -> str:
        """The key, for a message."""
        return shorten(self._key)

    def read(self) -> Item | None:
        """The item, strongly consistent.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: a defect, or the retry_budget is over.
        """
        answer = retry(
            lambda: self._table.get_item(Key=self._key, ConsistentRead=True),
            self.retry_budget,
            repeat_after=may_pass,
        )
        return answer.get("Item")

    def is_same(self, seen: Item | None, new: Mapping[str, Any] | None) -> bool:
        """Whether a change changes nothing."""
        if seen is None or new is None:
            return seen is new
        return _is_same(self._content(seen), self._content(new))

    def replace(
        self, seen: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> Written | None:
        """Writes `new` in the place of `seen`, or deletes it if `new` is None.

        Returns:
            None if another writer was faster: then nothing was written.
        """
        version = self._version_of(seen)
        condition = self._unchanged(seen, version)
        seen_id = self.write_id_of(seen or {})
        write_id = versions.write_id(secrets.token_hex(_WRITE_ID_BYTES), seen=seen_id)
        write = _ConditionalWrite(self, write_id, seen_id)
        if new is None:
            happened = write.send(lambda: self._table.delete_item(Key=self._key, **condition))
            return Written(None) if happened else None
        item = {**self._content(new), self._version: version + 1, self._write_id: write_id}
        happened = write.send(lambda: self._table.put_item(Item=item, **condition))
        return Written(item) if happened else None

    def write_id_of(self, item: Mapping[str, Any]) -> object:
        """The id of the write that made the item what it is; None if it has none."""
        return item.get(self._write_id)

    def _content(self, item: Mapping[str, Any]) -> Item:
        """The item without its version, under this key.

        Raises:
            InvalidRequest: the item has another key, or is no item.
        """
        _require_item("item", item)
        for name, value in self._key.items():
            if item.get(name, value) != value:
                rule = "is part of the key, which a change must leave as it is"
                raise InvalidRequest(field=name, rule=rule, value=item[name])
        content = {k: v for k, v in item.items() if k not in {self._version, self._write_id}}
        return {**content, **self._key}

    def _version_of(self, seen: Mapping[str, Any] | None) -> int:
        if seen is not None:
            _require_item("seen", seen)
        version = (seen or {}).get(self._version, 0)
        if isinstance(version, bool) or not isinstance(version, int | Decimal) or version % 1:
            rule = "must be a whole number, for it is the version of the item"
            raise InvalidRequest(field=self._version, rule=rule, value=version)
        return int(version)

    def _unchanged(self, seen: Mapping[str, Any] | None, version: int) -> dict[str, Any]:
        """The condition that the item is still the one that was seen."""
        if seen is None:
            return _condition(versions.NOT_THERE, {"#key": self._key_name})
        if self._version not in seen:
            names = {"#key": self._key_name, "#version": self._version}
            return _condition(versions.THERE_WITHOUT_VERSION, names)
        names = {"#version": self._version, "#write_id": self._write_id}
        values: dict[str, Any] = {":version": version}
        if self._write_id not in seen:
            return _condition(versions.SAME_VERSION, names, values)
        values[":write_id"] = seen[self._write_id]
        return _condition(versions.SAME_WRITE, names, values)

    @property
    def _key_name(self) -> str:
        return next(iter(self._key))


class _ConditionalWrite:
    """One conditional write, sent until it is known whether it happened.

    A repeat after a lost reply, by us or by botocore, is safe: the condition lets the write happen
    once at most. After a repeat a failed condition has two meanings, and the item tells which.
    """

    def __init__(self, versioned: VersionedItem, write_id: str, seen_id: object) -> None:
        self._versioned = versioned
        self._write_id = write_id
        self._seen_id = seen_id
        self._may_have_happened = False

    def send(self, write: Callable[[], object]) -> bool:
        """Whether the write happened; if not, another writer was faster.

        Raises:
            OutcomeUnknown: neither an answer nor the item tells.
        """
        try:
            retry(write, self._versioned.retry_budget, repeat_after=self._may_pass)
        except Exception as error:
            if isinstance(error, ClientError) and error_code(error) == _CONDITION_FAILED:
                return self._was_ours(error)
            if self._may_have_happened:
                raise self._outcome_unknown() from error
            raise
        return True

    def _may_pass(self, error: Exception) -> bool:
        passes = may_pass(error)
        self._may_have_happened |= was_repeated(error) or (passes and not was_not_written(error))
        return passes

    def _was_ours(self, error: ClientError) -> bool:
        """Whether the condition failed because an earlier sending of this write happened."""
        stored = cast("Mapping[str, Any]", error.response.get("Item", {}))
        item = {name: _DESERIALIZER.deserialize(value) for name, value in stored.items()}
        found = self._versioned.write_id_of(item)
        happened = versions.happened(ours=self._write_id, seen=self._seen_id, found=found)
        if happened is None and self._may_have_happened:
            raise self._outcome_unknown() from error
        return bool(happened)

    def _outcome_unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the item {self._versioned.shown_key} may have been written, or not; read it before "
            "making the change again"
        )


def _condition(
    text: str, names: Mapping[str, str], values: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "ConditionExpression": text,
        "ExpressionAttributeNames": names,
        **({"ExpressionAttributeValues": values} if values else {}),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _is_same(one: object, other: object) -> bool:
    """Whether DynamoDB would store the same; to Python, True is 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _require_item(field: str, item: object) -> None:
    if not isinstance(item, Mapping):
        rule = "must be an item, a mapping from names to values, or None"
        raise InvalidRequest(field=field, rule=rule, value=item)


def _check(key: Mapping[str, Any], version_attribute: str) -> None:
    if not isinstance(key, Mapping) or not key:
        rule = "must be the item's whole primary key, a mapping from names to values"
        raise InvalidRequest(field="key", rule=rule, value=key)
    if not isinstance(version_attribute, str) or not version_attribute:
        rule = "must be the name of an attribute"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
    if {version_attribute, versions.write_id_attribute(version_attribute)} & set(key):
        rule = "must not be a part of the key"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)
