"""Writes of an application that happen only while its lock is held, even if a process stalls.

The lock's item is part of the application's own DynamoDB transaction, so that DynamoDB decides in
one moment that the lock is still held and that the items are written.
"""

from __future__ import annotations

import copy
import hashlib
import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from fairlock.aws.lock_table import LockTable, Written
from fairlock.aws.retry import DYNAMODB_CLIENT
from fairlock.errors import InvalidRequest, LockLost, LockStoreUnavailable, explained
from fairlock.guarded.conditions import (
    DEFAULT_ATTRIBUTE,
    MOST_ITEMS,
    FenceCondition,
    GrantKey,
    fence_condition,
    grant_check,
)
from fairlock.guarded.guarded_table import GuardedCall, GuardedTable, lock_lost, other_contents
from fairlock.protocol.items import read_holder
from fairlock.protocol.leaving import DepartingHolder, release_permit
from fairlock.protocol.model import ReleaseRequest
from fairlock.protocol.schema import PARTITION_KEY, partition_of
from fairlock.store.context import LockContext, leave
from fairlock.store.hand_off import hand_over, wake_if_it_holds
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


_VERBS: Final = ("Put", "Update", "Delete", "ConditionCheck")
_LONGEST_TOKEN: Final = 256
_KNOWN_SECONDS: Final = 9 * 60
"""How long every token is known: as long as DynamoDB surely knows it."""
_MOST_COMMITTED: Final = 10_000
"""How many older tokens of committed writes are known: 6 MB, for a lock that is held for weeks."""
_REPEAT_WITH_TOKEN: Final = "{error}; repeat the call with the same items and the same token"
_NO_TOKEN: Final = (
    "{error}; the items may have been written, or may be yet. A repeat of this call is a new "
    "write: read the items first. Give each write a token of its own (token=…), and a repeat with "
    "it is the same write"
)


class GuardedWrites:
    """The guarded writes of one acquisition; keep one object for as long as the lock is held.

    Guaranteed: a transaction sent from here happens only while this very grant holds the lock, and
    entirely or not at all. With `release` the lock is released if the items are written, and only
    then. A holder whose lease is over still holds, as long as no other owner has its place.

    Not guaranteed: anything about writes that are not in the transaction.

    Args:
        client: a boto3 DynamoDB client (not the one of a Table resource, which converts values);
            `fairlock.aws.retry.CLIENT_CONFIG` suits it.
        table_name: the lock table's name or ARN.
        lock_name: the lock.
        owner_id: the acquisition that was granted.
        fencing_token: the token of that grant.
        context: how the lock is handed over on release (who is notified), clock and retry_budget.

    Raises:
        InvalidRequest: an argument breaks its rule.
    """

    @explained
    def __init__(
        self,
        client: DynamoDBClient,
        *,
        table_name: str,
        lock_name: str,
        owner_id: str,
        fencing_token: int,
        context: LockContext | None = None,
    ) -> None:
        rules.require("table_name", rules.TABLE_NAME, table_name)
        rules.require("client", DYNAMODB_CLIENT, client)
        if context is not None and not isinstance(context, LockContext):
            rule = "must be a LockContext of the lock table, or left out"
            raise InvalidRequest(field="context", rule=rule, value=context, show_text=False)
        self._client = client
        self._table_name = table_name
        self._grant = GrantKey(lock_name=lock_name, owner_id=owner_id, fencing_token=fencing_token)
        self._context = context or LockContext(table=LockTable(client, table_name))
        self._named: dict[str, GuardedCall] = {}
        self._committed: dict[str, GuardedCall] = {}
        # Re-entered by a signal handler that writes, too.
        self._mutex = threading.RLock()

    def condition_check(self) -> TransactWriteItemTypeDef:
        """An item for the caller's own transaction, see `fairlock.guarded.condition_check`."""
        return grant_check(self._table_name, self._grant)

    def fence_condition(self, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
        """A fence for single writes, see `fairlock.guarded.conditions.fence_condition`."""
        return fence_condition(self._grant.fencing_token, attribute=attribute)

    @explained
    def transact_write(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        token: str | None = None,
        release: bool = False,
    ) -> None:
        """Commits the items if the lock is still held; with `release`, releases the lock as well.

        One request, also with `release`; if others wait, the release costs two more and a push, and
        the oldest waiter becomes the holder in this very transaction. Send no heartbeats from then
        on: one that comes later is answered "not held", which is no loss. Arguments and errors are
        those of `fairlock.Lock.transact_write`, and `LockStoreMisconfigured` if a table or a
        permission is missing.

        After an unknown outcome, a repeat with the token sends the same transaction again within
        nine minutes; later DynamoDB does not know, and the call goes on raising this error. A
        repeat of a committed write succeeds, unless 10,000 newer writes of this object have
        committed.
        """
        self.send(self.call(items, token=token, release=release))

    def call(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        token: str | None = None,
        release: bool = False,
    ) -> GuardedCall:
        """The write that a call of `transact_write` means, for callers that `send` it."""
        writes = self._checked(items, release=release)
        if token is None:
            return GuardedCall(items=writes, release=release)
        if not isinstance(token, str) or not 1 <= len(token) <= _LONGEST_TOKEN:
            rule = f"must be text of 1 to {_LONGEST_TOKEN} characters, new for each write"
            raise InvalidRequest(field="token", rule=rule, value=token, show_text=False)
        digest = _digest(writes, release=release)
        with self._mutex:
            self._forget_old()
            named = self._named.get(token) or self._committed.get(token)
            # A write that was surely refused leaves its token free, for corrected contents.
            if named is not None and named.may_have_happened:
                if named.digest != digest:
                    raise other_contents()
                return named
            # A repeat may come before the first call is sent: that waits for a heartbeat.
            if named is not None and named.digest == digest and not named.is_answered:
                return named
            # A release sends different transactions as the queue moves: each needs a request token
            # of its own. Without one it is always the same transaction, so even a process that was
            # restarted under the same owner_id repeats it under the same request token.
            self._named[token] = call = GuardedCall(
                items=writes,
                release=release,
                request_token=None if release else self._request_token(token),
                digest=digest,
                began=self._context.retry_budget.clock.monotonic(),
            )
            return call

    def send(self, call: GuardedCall) -> None:
        """Commits the items of the call; errors as of `transact_write`."""
        table = GuardedTable(
            self._client,
            self._table_name,
            retry_budget=self._context.retry_budget,
            aws_clock=self._context.aws_clock,
            grant=self._grant,
            call=call,
        )
        try:
            self._send(table, call)
        except LockStoreUnavailable as error:
            # After the commit only a hand-over of further permits can fail. The waiters behind it
            # find them by their own polls.
            if call.committed:
                return
            if not call.open:
                raise
            text = _REPEAT_WITH_TOKEN if call.digest else _NO_TOKEN
            raise LockStoreUnavailable(text.format(error=error)) from error
        finally:
            call.is_answered = True
        if call.untold is not None:
            # Before the repeat no one could know that its waiter would hold.
            wake_if_it_holds(self._context, call.untold)
            call.untold = None

    def _send(self, table: GuardedTable, call: GuardedCall) -> None:
        try:
            if table.has_committed():
                return
            if call.release:
                self._write_and_release(table)
            else:
                self._write(table)
            # A hand-off takes it for done if it sees the waiter's grant. The answer may be lost.
            if not table.has_committed():
                raise lock_lost(self._grant)
        except LockLost:
            # The grant may be gone because an open transaction has landed after we asked for it.
            # Asked now, it answers for good: a grant that is gone never comes back.
            if table.has_committed():
                return
            call.open.clear()
            raise

    def _forget_old(self) -> None:
        """Drops tokens of writes long refused, and of the oldest committed ones. Doubts stay."""
        now = self._context.retry_budget.clock.monotonic()
        for token, named in [*self._named.items()]:
            if now - named.began <= _KNOWN_SECONDS:
                break  # The younger ones come after it.
            if named.open:
                continue
            del self._named[token]
            if named.committed:
                self._committed[token] = named
        while len(self._committed) > _MOST_COMMITTED:
            del self._committed[next(iter(self._committed))]

    def _request_token(self, token: str) -> str:
        grant = self._grant
        table_name = _plain_name(self._table_name)
        parts = [table_name, grant.lock_name, grant.owner_id, grant.fencing_token, token]
        return str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(parts)))

    def _write(self, table: GuardedTable) -> None:
        check = self.condition_check()
        check["ConditionCheck"]["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if (failed := table.commit([check])) is not None:
            table.still_held(failed[0])
            raise lock_lost(self._grant)

    def _write_and_release(self, table: GuardedTable) -> None:
        """As `store.release`, with a table that has the items in its transaction."""
        request = ReleaseRequest(
            lock_name=self._grant.lock_name,
            owner_id=self._grant.owner_id,
            fencing_token=self._grant.fencing_token,
        )
        context = self._context
        outcome, state = leave(
            context,
            request.lock_name,
            lambda left_at_ms: table.update(release_permit(request, left_at_ms=left_at_ms)),
            may_leave=lambda seen: not seen.contended,
        )
        if isinstance(outcome, Written):
            return
        holder = read_holder(outcome.item, request.owner_id)
        departing = DepartingHolder(holder, voluntary=True)
        context = replace(context, table=table, note_sending=table.note_sending)
        hand_over(context, request.lock_name, state, departing=departing)

    def _checked(
        self, items: Sequence[TransactWriteItemTypeDef], *, release: bool
    ) -> list[TransactWriteItemTypeDef]:
        """A copy of the items, if they break no rule."""
        rules.require("release", rules.FLAG, release)
        most = MOST_ITEMS - (2 if release else 1)  # Our own: a hand-off deletes the waiter, too.
        if not isinstance(items, list | tuple):
            rule = "must be a list of writes, as for boto3's transact_write_items"
            raise InvalidRequest(field="items", rule=rule, value=items, show_text=False)
        if not 1 <= len(items) <= most:
            rule = f"must be 1 to {most} writes{' when the lock is released with them' * release}"
            raise InvalidRequest(field="items", rule=rule, value=f"{len(items)} items")
        for index, item in enumerate(items):
            self._check(index, item)
        return copy.deepcopy(list(items))

    def _check(self, index: int, item: TransactWriteItemTypeDef) -> None:
        """Refuses what is no write, and writes of this lock; DynamoDB checks the rest."""
        verbs = list(item) if isinstance(item, dict) else []
        if len(verbs) != 1 or verbs[0] not in _VERBS:
            rule = f"item {index} must be a dict with one of {', '.join(_VERBS)}"
            raise InvalidRequest(field="items", rule=rule, value=item, show_text=False)
        write = cast("Mapping[str, Any]", item)[verbs[0]]
        fields = write if isinstance(write, dict) else {}
        table_name, key = fields.get("TableName"), fields.get("Item", fields.get("Key"))
        if not isinstance(table_name, str) or not isinstance(key, dict):
            rule = f"item {index} must have a TableName, and an Item or a Key"
            raise InvalidRequest(field="items", rule=rule, value=item, show_text=False)
        is_lock_table = _plain_name(table_name) == _plain_name(self._table_name)
        partition = {"S": partition_of(self._grant.lock_name)}
        if is_lock_table and key.get(PARTITION_KEY) == partition:
            rule = f"item {index} must not be one of the lock's own items in the lock table"
            raise InvalidRequest(field="items", rule=rule, value=self._grant.lock_name)


def _digest(items: list[TransactWriteItemTypeDef], *, release: bool) -> str:
    """A short text that differs if the contents do, so that answered writes take little memory."""
    return hashlib.sha256(repr((_in_order(items), release)).encode()).hexdigest()


def _in_order(value: object) -> object:
    """The value with the fields of each dict in one order."""
    if isinstance(value, dict):
        return [(name, _in_order(value[name])) for name in sorted(value, key=repr)]
    return [_in_order(each) for each in value] if isinstance(value, list | tuple) else value


def _plain_name(table_name: str) -> str:
    """A table's name, even if it is given as an ARN."""
    return table_name.rpartition("table/")[2]
