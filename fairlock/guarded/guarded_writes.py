"""Writes of an application that happen only while its lock is held, even if a process stalls.

A lease cannot stop a process that sleeps through its end. A guarded write can: the lock's item is
part of the application's own DynamoDB transaction, so that DynamoDB decides in one moment that the
lock is still held and that the items are written.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from fairlock.aws.lock_table import LockTable, Written
from fairlock.errors import InvalidRequest, LockStoreUnavailable
from fairlock.guarded.conditions import (
    DEFAULT_ATTRIBUTE,
    MOST_ITEMS,
    FenceCondition,
    GrantKey,
    fence_condition,
    grant_check,
)
from fairlock.guarded.guarded_table import (
    GuardedTable,
    PendingCall,
    PendingCalls,
    SentTransaction,
    lock_lost,
)
from fairlock.protocol.departure import DepartingHolder
from fairlock.protocol.items import read_holder, read_state
from fairlock.protocol.model import LockState, ReleaseRequest
from fairlock.protocol.permits import release_permit
from fairlock.protocol.schema import PARTITION_KEY, partition_of
from fairlock.store.context import LockContext, pause_or_give_up
from fairlock.store.hand_off import hand_over

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


_OWN_WRITES: Final = 1
_OWN_WRITES_OF_A_HAND_OFF: Final = 2
_LISTS: Final = (list, tuple)
_VERBS: Final = ("Put", "Update", "Delete", "ConditionCheck")
_REPEATABLE_SECONDS: Final = 9 * 60
"""DynamoDB knows a request token for ten minutes after the request; a minute is for its way."""
_FORGOTTEN: Final = (
    "lock {lock_name!r}: the outcome of a transaction is unknown, and DynamoDB does not remember "
    "it any more; read the items to find out"
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
        context: how the lock is handed over on release (who is told), clock and retry_budget.
    """

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
        self._client = client
        self._table_name = table_name
        self._grant = GrantKey(lock_name=lock_name, owner_id=owner_id, fencing_token=fencing_token)
        self._context = context or LockContext(table=LockTable(client, table_name))
        self._calls = PendingCalls()

    def condition_check(self) -> TransactWriteItemTypeDef:
        """An item for the caller's own transaction, see `fairlock.guarded.condition_check`."""
        grant = self._grant
        return grant_check(
            table_name=self._table_name,
            lock_name=grant.lock_name,
            owner_id=grant.owner_id,
            fencing_token=grant.fencing_token,
        )

    def fence_condition(self, attribute: str = DEFAULT_ATTRIBUTE) -> FenceCondition:
        """A fence for single writes, see `fairlock.guarded.conditions.fence_condition`."""
        return fence_condition(self._grant.fencing_token, attribute=attribute)

    def transact_write(
        self, items: Sequence[TransactWriteItemTypeDef], *, release: bool = False
    ) -> None:
        """Commits the items if the lock is still held; with `release`, releases the lock as well.

        One request, also with `release`; if others wait, the release costs two more and a push, and
        the oldest waiter becomes the holder in this very transaction.

        Args:
            items: as for boto3's `transact_write_items`, with low-level attribute values: at most
                99, with `release` 98. They may write to any table, but not to items of this lock.
            release: whether the lock is released in the same transaction. Send no heartbeats from
                then on: one that comes later is answered "not held", which is no loss.

        Raises:
            LockLost: the lock is gone. Nothing was written.
            TransactionRefused: DynamoDB refused items, for instance because a condition of theirs
                failed. Nothing was written, and the lock is still held.
            InvalidRequest: the items break a rule, of ours or of DynamoDB. Nothing was written.
            LockStoreMisconfigured: a table or a permission is missing. Nothing was written.
            LockStoreUnavailable: outcome unknown. Repeat the same call on this object: within nine
                minutes it sends the same transaction again, and so gives the answer that got lost.
                Later nobody can tell, and the call goes on raising this error. Repeat it also
                after any other error that interrupted it, of a signal handler for instance.
        """
        with self.call(items, release=release, caller=threading.get_ident()) as call:
            self.send(call)

    def call(
        self,
        items: Sequence[TransactWriteItemTypeDef],
        *,
        release: bool = False,
        caller: Hashable,
        goes_on_after: type[BaseException] | tuple[()] = (),
    ) -> AbstractContextManager[PendingCall]:
        """The call of `transact_write`, for callers that `send` it themselves, within the block.

        Arguments as of `transact_write`, and of `PendingCalls.call`.

        Raises:
            InvalidRequest: the items break a rule.
        """
        writes = self._checked(items, release=release)
        return self._calls.call(writes, release=release, caller=caller, goes_on_after=goes_on_after)

    def send(self, call: PendingCall) -> None:
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
            if call.sent is not None and self._has_happened(table, call.sent):
                return
            if call.release:
                self._write_and_release(table)
            else:
                self._write(table)
        except LockStoreUnavailable:
            # After the commit only a hand-over of further permits can fail. The waiters behind it
            # find them by their own polls.
            if not table.committed:
                raise

    def _write(self, table: GuardedTable) -> None:
        if table.commit([self.condition_check()]) is not None:
            raise lock_lost(self._grant)

    def _write_and_release(self, table: GuardedTable) -> None:
        """As `store.release`, with a table that has the items in its transaction."""
        request = ReleaseRequest(
            lock_name=self._grant.lock_name,
            owner_id=self._grant.owner_id,
            fencing_token=self._grant.fencing_token,
        )
        context, state = self._context, LockState()
        began = context.retry_budget.clock.monotonic()
        for attempt in itertools.count():
            departure = release_permit(request, left_at_ms=context.leaving_ms(state))
            outcome = table.update(departure)
            if isinstance(outcome, Written):
                return
            state = read_state(outcome.item)
            if state.contended:
                break
            # An owner whose clock is ahead of ours left last: ours must not seem earlier.
            pause_or_give_up(context, request.lock_name, began=began, attempt=attempt)
        holder = read_holder(outcome.item, request.owner_id)
        departing = DepartingHolder(holder, voluntary=True)
        hand_over(replace(context, table=table), request.lock_name, state, departing=departing)

    def _has_happened(self, table: GuardedTable, sent: SentTransaction) -> bool:
        """Whether this transaction, sent by an earlier call, has happened; or does so now.

        If not, then it is certain now that it did not, and a new transaction may be sent.
        """
        if sent.age_seconds(self._context.retry_budget.clock) > _REPEATABLE_SECONDS:
            raise LockStoreUnavailable(_FORGOTTEN.format(lock_name=self._grant.lock_name))
        return table.send(sent) is None

    def _checked(
        self, items: Sequence[TransactWriteItemTypeDef], *, release: bool
    ) -> list[TransactWriteItemTypeDef]:
        """A copy of the items, if they break no rule."""
        most = MOST_ITEMS - (_OWN_WRITES_OF_A_HAND_OFF if release else _OWN_WRITES)
        if not isinstance(items, _LISTS):
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


def _plain_name(table_name: str) -> str:
    """A table's name, also if it is given as an ARN."""
    return table_name.rpartition("table/")[2]
