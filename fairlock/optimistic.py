"""Optimistic locking: read, change, and write on the condition that nobody wrote in between.

    from fairlock import optimistic

    def debit(account):
        if account is None or account["balance"] < 30:
            raise Overdrawn
        account["balance"] -= 30
        return account

    optimistic.update(table, {"account": "anna"}, debit)

No writer waits: the slower of two reads again and makes its change anew. Right where conflicts are
rare and a change may be computed several times. Where it must happen once (it sends an e-mail, it
takes minutes) hold a lock instead.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from fairlock.dynamodb.retry import RetryBudget
from fairlock.dynamodb.versioned_item import Item, VersionedItem
from fairlock.errors import InvalidRequest, VersionConflict
from fairlock.protocol.versions import DEFAULT_VERSION_ATTRIBUTE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

__all__ = ["RetryBudget", "delete", "put", "read", "update"]

Change = Callable[[Item | None], Mapping[str, Any] | None]
"""From the item as it is, or None, to the item as it should be, or None."""

DEFAULT_RETRIES: Final = 10


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
    is lost, and none is made twice, also if the reply to a write gets lost.

    Not guaranteed: that `change` is called once. It may be called again with a newer item, so it
    must do nothing but compute. Writers that do not go through here must raise the version too.

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
        retry_budget: clock and jitter of the pauses, how long to go on when DynamoDB does not
            answer, and a deadline.

    Returns:
        The item as it was written, or as it is if there was nothing to change, version included;
        None if it was deleted or is not there.

    Raises:
        VersionConflict: other writers were faster at every try, or at each until the deadline of
            the retry_budget. Nothing was written.
        OutcomeUnknown: the reply to a write got lost, and the item does not tell (any more) whether
            it happened: it is gone, made anew, or others have written twice. The change may have
            been made; read the item before making it again.
        InvalidRequest: an argument, the stored version or the changed key breaks a rule. Nothing
            was written.
        botocore.exceptions.ClientError, BotoCoreError: DynamoDB refuses the request, or is too busy
            for it, or a read got no answer. Nothing was written.
    """
    item = VersionedItem(table, key, version_attribute, retry_budget)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        rule = "must be a whole number, 0 for a single try"
        raise InvalidRequest(field="retries", rule=rule, value=retries)
    if not callable(change):
        rule = "must be a function of the item"
        raise InvalidRequest(field="change", rule=rule, value=change, show_text=False)
    for attempt in itertools.count():
        seen = item.read()
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
            if attempt >= retries or item.retry_budget.has_ended():
                raise item.conflict(f"{attempt + 1} tries") from error
        else:
            return None
        item.retry_budget.pause(attempt)
    raise AssertionError  # pragma: no cover - count() has no end


def read(
    table: Table, key: Mapping[str, Any], *, retry_budget: RetryBudget | None = None
) -> Item | None:
    """The item, strongly consistent; None if there is none. What `put` and `delete` call `seen`.

    Args:
        table: a boto3 Table resource.
        key: the item's whole primary key.
        retry_budget: how long to go on when DynamoDB does not answer.

    Raises:
        InvalidRequest: the key is not one.
        botocore.exceptions.ClientError, BotoCoreError: DynamoDB refuses, or does not answer.
    """
    return VersionedItem(table, key, DEFAULT_VERSION_ATTRIBUTE, retry_budget).read()


def put(
    table: Table,
    key: Mapping[str, Any],
    item: Mapping[str, Any],
    *,
    seen: Mapping[str, Any] | None,
    version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
    retry_budget: RetryBudget | None = None,
) -> Item:
    """Replaces the item that was seen. One request.

    Args:
        table: a boto3 Table resource.
        key: the item's whole primary key.
        item: the whole new item, with or without key and version.
        seen: the item as it was read; None if there was none, for the first write.
        version_attribute: where the item keeps its version.
        retry_budget: how long to go on when DynamoDB does not answer.

    Returns:
        The item as it was written, which is what to call `seen` next time.

    Raises:
        VersionConflict: another writer wrote since. Nothing was written.
        OutcomeUnknown, InvalidRequest, ClientError, BotoCoreError: see `update`.
    """
    return VersionedItem(table, key, version_attribute, retry_budget).replace(seen, item)


def delete(
    table: Table,
    key: Mapping[str, Any],
    *,
    seen: Mapping[str, Any],
    version_attribute: str = DEFAULT_VERSION_ATTRIBUTE,
    retry_budget: RetryBudget | None = None,
) -> None:
    """Deletes the item that was seen. One request.

    Args:
        table: a boto3 Table resource.
        key: the item's whole primary key.
        seen: the item as it was read.
        version_attribute: where the item keeps its version.
        retry_budget: how long to go on when DynamoDB does not answer.

    Raises:
        VersionConflict: another writer wrote or deleted it since. Nothing was deleted.
        OutcomeUnknown: the reply got lost, and the item is gone (which anybody may have done), made
            anew, or written twice by others.
        InvalidRequest, ClientError, BotoCoreError: see `update`.
    """
    VersionedItem(table, key, version_attribute, retry_budget).delete(seen)
