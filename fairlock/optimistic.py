"""Optimistic locking: read, change, and write on the condition that no one wrote in between.

No writer waits: the slower of two makes its change again. Right where conflicts are rare. Where the
change must happen once (it sends an e-mail, it takes minutes) hold a lock instead.
"""

from __future__ import annotations

import copy
import itertools
import secrets
from collections.abc import Callable, Mapping
from decimal import Decimal
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, cast

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from fairlock.aws.retry import (
    RepeatedRequest,
    RetryBudget,
    error_code,
    may_pass,
    require_budget,
    was_not_written,
    was_repeated,
)
from fairlock.errors import InvalidRequest, OutcomeUnknown, VersionConflict, explained
from fairlock.protocol import versions
from fairlock.protocol.versions import DEFAULT_VERSION_ATTRIBUTE
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table


Item = dict[str, Any]
_VERSIONS_BELOW: Final = 10**18
"""Beyond 28 digits a Decimal has no remainder, only an error; no item is written so often."""
_CONDITION_FAILED: Final = "ConditionalCheckFailedException"


class VersionedItem:
    """One item of a table: a read, and writes on condition that the item is as it was seen."""

    def __init__(
        self,
        table: Table,
        key: Mapping[str, Any],
        version_attribute: str,
        retry_budget: RetryBudget | None,
    ) -> None:
        _check(table, key, version_attribute, retry_budget)
        self._table = table
        self._key = dict(key)
        self._version = version_attribute
        self._write_id = versions.write_id_attribute(version_attribute)
        self.retry_budget = retry_budget or RetryBudget()

    def read(self) -> Item | None:
        """The item, strongly consistent."""
        request = RepeatedRequest(self.retry_budget, repeat_after=may_pass)
        try:
            answer = request.send(self._table.get_item, Key=self._key, ConsistentRead=True)
        except TypeError:
            _require_storable("key", self._key)
            raise
        return answer.get("Item")

    def is_same(self, seen: Item | None, new: Mapping[str, Any] | None) -> bool:
        """Whether a change changes nothing."""
        if seen is None or new is None:
            return seen is new
        return _is_same(self._content(seen), self._content(new))

    def replace(self, seen: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Item:
        """Writes `new` in the place of `seen`; returns it with its version. Errors as of `put`."""
        version, write_id = self._version_of(seen), self._new_write_id(seen)
        item = {**self._content(new), self._version: version + 1, self._write_id: write_id}
        condition = self._unchanged(seen, version)
        try:
            self._send(lambda: self._table.put_item(Item=item, **condition), write_id, seen)
        except TypeError:
            _require_storable("item", item)  # boto3 has converted the values before it sent any.
            raise
        return item

    def delete(self, seen: Mapping[str, Any] | None) -> None:
        """Deletes `seen`; errors as of `delete` below."""
        condition = self._unchanged(seen, self._version_of(seen))
        write_id = self._new_write_id(seen)
        self._send(lambda: self._table.delete_item(Key=self._key, **condition), write_id, seen)

    @property
    def _name(self) -> str:
        """The key of the item, for messages. It is the caller's own, and no secret of a lock's."""
        return repr(self._key)[:200]

    def conflict(self, tries: str) -> VersionConflict:
        """The error after tries to write the item at each of which others were faster."""
        return VersionConflict(
            f"the item {self._name} was changed by others before {tries} to write it"
        )

    def _send(
        self, write: Callable[[], object], write_id: str, seen: Mapping[str, Any] | None
    ) -> None:
        """Sends one conditional write until it is known whether it happened.

        A repeat after a lost reply, by us or by botocore, is safe: the condition lets the write
        happen once at most.
        """
        may_have_happened = False

        def passes(error: Exception) -> bool:
            nonlocal may_have_happened
            later = may_pass(error)
            # Botocore repeats by itself, and tells only of its last try. Once a sending had no
            # answer, no later refusal proves that nothing was written.
            may_have_happened |= was_repeated(error) or (later and not was_not_written(error))
            return later

        try:
            RepeatedRequest(self.retry_budget, repeat_after=passes).send(write)
        except Exception as error:
            refused = isinstance(error, ClientError) and error_code(error) == _CONDITION_FAILED
            # The write whose reply was lost has changed the item: its own repeat is refused, and
            # the id in the item tells whose write it was.
            happened = self._has_happened(error, write_id, seen) if refused else None
            if happened:
                return
            if happened is None and may_have_happened:
                message = (
                    f"the item {self._name} may have been written, or not; read it before "
                    "making the change again"
                )
                raise OutcomeUnknown(message) from error
            if refused:
                raise self.conflict("the only try") from error
            raise

    def _has_happened(
        self, error: Exception, write_id: str, seen: Mapping[str, Any] | None
    ) -> bool | None:
        """Whether the condition failed because this write has happened; None if that is unknown."""
        stored = cast("ClientError", error).response.get("Item", {})
        found = cast("Mapping[str, Any]", stored).get(self._write_id)
        found_id = None if found is None else TypeDeserializer().deserialize(found)
        seen_id = (seen or {}).get(self._write_id)
        return versions.happened(ours=write_id, seen=seen_id, found=found_id)

    def _new_write_id(self, seen: Mapping[str, Any] | None) -> str:
        seen_id = (seen or {}).get(self._write_id)
        return versions.write_id(secrets.token_hex(8), seen=seen_id)

    def _content(self, item: Mapping[str, Any]) -> Item:
        """The item without its version, under this key, which must be its own."""
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
        if not _is_version(version):
            rule = "must be a whole number of at most 18 digits, for it is the version of the item"
            raise InvalidRequest(field=self._version, rule=rule, value=version)
        return int(version)

    def _unchanged(self, seen: Mapping[str, Any] | None, version: int) -> dict[str, Any]:
        if seen is None:
            condition = versions.NOT_THERE
        elif self._version not in seen:
            condition = versions.THERE_WITHOUT_VERSION
        else:
            condition = versions.SAME_WRITE if self._write_id in seen else versions.SAME_VERSION
        names = {
            "#key": next(iter(self._key)),
            "#version": self._version,
            "#write_id": self._write_id,
        }
        values = {":version": version, ":write_id": (seen or {}).get(self._write_id)}
        used = {name: value for name, value in values.items() if name in condition}
        return {
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {n: name for n, name in names.items() if n in condition},
            **({"ExpressionAttributeValues": used} if used else {}),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def _is_same(one: object, other: object) -> bool:
    """Whether DynamoDB would store the same; to Python, True is 1."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _is_version(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return False
    # NaN compares with nothing, so it is ruled out first.
    is_finite = not isinstance(value, Decimal) or value.is_finite()
    return is_finite and -_VERSIONS_BELOW < value < _VERSIONS_BELOW and value % 1 == 0


def _require_item(field: str, item: object) -> None:
    if not isinstance(item, Mapping):
        rule = "must be an item, a mapping from names to values, or None"
        raise InvalidRequest(field=field, rule=rule, value=item)


def _require_storable(field: str, item: Item) -> None:
    try:
        TypeSerializer().serialize(item)
    except TypeError as error:
        rule = f"must have values that boto3 takes for DynamoDB: {error}"
        raise InvalidRequest(field=field, rule=rule, value=item) from error


def _check(
    table: object, key: Mapping[str, Any], version_attribute: str, retry_budget: object
) -> None:
    if not hasattr(table, "get_item") or isinstance(table, BaseClient):
        rule = 'must be a table, as boto3.resource("dynamodb").Table(name) makes it'
        raise InvalidRequest(field="table", rule=rule, value=table)
    if retry_budget is not None:
        require_budget(retry_budget)
    if not isinstance(key, Mapping) or not key:
        rule = "must be the item's whole primary key, a mapping from names to values"
        raise InvalidRequest(field="key", rule=rule, value=key)
    rules.require("version_attribute", rules.ATTRIBUTE, version_attribute, show_text=True)
    if {version_attribute, versions.write_id_attribute(version_attribute)} & set(key):
        rule = "must not be a part of the key"
        raise InvalidRequest(field="version_attribute", rule=rule, value=version_attribute)


__all__ = ["RetryBudget", "delete", "put", "read", "update"]

Change = Callable[[Item | None], Mapping[str, Any] | None]
"""From the item as it is, or None, to the item as it should be, or None."""

DEFAULT_RETRIES: Final = 10


@explained
def update(
    table: Table,
    key: Mapping[str, Any],
    change: Change,
    *,
    version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
    retries: int = DEFAULT_RETRIES,
    retry_budget: RetryBudget | None = None,
) -> Item | None:
    """Changes one item safely beside other writers. One read and one write without a conflict.

    Guaranteed: what is written was computed from what it replaces; of two concurrent changes none
    is lost, and none is made twice, even if the reply to a write gets lost.

    Not guaranteed: that `change` is called once, so it must do nothing but compute. Writers that do
    not go through here must raise the version too. If another writer deletes an item that was
    created here, a delayed copy of the request may create it again: mark items as deleted instead.

    Args:
        table: a boto3 Table resource.
        key: the item's whole primary key.
        change: gets a copy of the item, or None if there is none, and returns the new item (whole,
            with or without key and version), or None to delete it. An unchanged item is not
            written. None for an item that `change` has changed in place is refused: a `return` was
            forgotten. What it raises leaves `update`; nothing was written then.
        version_attribute: where the item keeps its version, a number; beside it, under this name
            and `_id`, it keeps the id of the write. Items that have none yet get version 1.
        retries: how many more times to try after a conflict, each after a pause with full jitter
            (up to 20 ms, doubling to 500 ms).
        retry_budget: clock, jitter and deadline of the pauses, and how long to go on when DynamoDB
            does not answer.

    Returns:
        The item as it was written, or as it is if there was nothing to change, version included;
        None if it was deleted or is not there.

    Raises:
        VersionConflict: other writers were faster at every try, or at each until the deadline of
            the retry_budget. Nothing was written.
        OutcomeUnknown: the reply to a write got lost, and the item does not tell (any more) whether
            it happened.
        InvalidRequest: an argument, the stored version or the changed key breaks a rule. Nothing
            was written.
        botocore.exceptions.ClientError, BotoCoreError: DynamoDB refuses the request, or is too busy
            for it, or a read got no answer. Nothing was written.
    """
    item = VersionedItem(table, key, version_attribute, retry_budget)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        rule = "must be a whole number, 0 for a single try"
        raise InvalidRequest(field="retries", rule=rule, value=retries)
    if not callable(change) or iscoroutinefunction(change):
        rule = "must be a plain function of the item"
        raise InvalidRequest(field="change", rule=rule, value=change, show_text=False)
    for attempt in itertools.count():
        seen = item.read()
        # The condition of the write is made of what was read, so `change` works on a copy.
        copied = copy.deepcopy(seen)
        new = change(copied)
        if new is None and copied != seen:
            rule = "must return the item that it has changed; None would delete it"
            raise InvalidRequest(field="change", rule=rule, value=None)
        if item.is_same(seen, new):
            return seen
        try:
            if new is not None:
                return item.replace(seen, new)
            item.delete(seen)
        except VersionConflict as error:
            # Surely not written, so the change is made again on what the faster writer has left.
            # `OutcomeUnknown` is not caught: a change that is made again could then happen twice.
            if attempt >= retries or item.retry_budget.deadline_passed():
                raise item.conflict(f"{attempt + 1} tries") from error
        else:
            return None
        item.retry_budget.pause(attempt)
    raise AssertionError  # pragma: no cover - count() has no end


@explained
def read(
    table: Table, key: Mapping[str, Any], *, retry_budget: RetryBudget | None = None
) -> Item | None:
    """The item, strongly consistent; None if there is none. What `put` and `delete` call `seen`.

    Arguments and errors are as of `update`.
    """
    return VersionedItem(table, key, DEFAULT_VERSION_ATTRIBUTE, retry_budget).read()


@explained
def put(
    table: Table,
    key: Mapping[str, Any],
    item: Mapping[str, Any],
    *,
    seen: Mapping[str, Any] | None,
    version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
    retry_budget: RetryBudget | None = None,
) -> Item:
    """Replaces the item that was seen. One request. Arguments and other errors are as of `update`.

    The `item` is the whole new one, with or without key and version; `seen` the one that was read,
    None if there was none. Returns the item as it was written, to call `seen` next time.

    Raises:
        VersionConflict: another writer wrote since. Nothing was written.
    """
    return VersionedItem(table, key, version_attribute, retry_budget).replace(seen, item)


@explained
def delete(
    table: Table,
    key: Mapping[str, Any],
    *,
    seen: Mapping[str, Any],
    version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
    retry_budget: RetryBudget | None = None,
) -> None:
    """Deletes the item `seen`, as it was read. One request. Arguments are as of `update`.

    Raises:
        VersionConflict: another writer wrote or deleted it since. Nothing was deleted.
        OutcomeUnknown: the reply got lost, and the item is gone (any program may have deleted it),
            was created again, or was written twice by others.
    """
    VersionedItem(table, key, version_attribute, retry_budget).delete(seen)
