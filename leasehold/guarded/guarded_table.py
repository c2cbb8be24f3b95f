"""A lock table whose next write of the lock takes the application's items along.

    GuardedWrites ──▶ hand_over, as for any release ──▶ GuardedTable: in one transaction
                                                       ├ the write that takes the holder out,
                                                       │ on condition of its fencing token
                                                       └ the application's items

So a lock changes hands by the same code with and without items, and waiters are served alike.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError, ParamValidationError

from leasehold.clock import Clock
from leasehold.dynamodb.failures import CONDITION_FAILED, cancellation_reasons
from leasehold.dynamodb.lock_table import Cancelled, ConditionFailed, LockTable, Written
from leasehold.dynamodb.retry import RepeatedRequest, RetryBudget
from leasehold.errors import CancellationReason, LockLost, TransactionRefused
from leasehold.guarded.pending_calls import Call, Request
from leasehold.protocol.condition_check import guarded
from leasehold.protocol.items import read_state
from leasehold.protocol.requests import Item, Transaction, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_NOTHING_WRONG: Final = "None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One acquisition, as it was granted."""

    lock_name: str
    owner_id: str
    fencing_token: int


class GuardedTable(LockTable):
    """A lock table for the way out of one holder, which takes the application's items along.

    Attributes:
        left: whether the transaction has happened; from then on it is a lock table like any other.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        retry_budget: RetryBudget,
        clock: Clock,
        held: Held,
        call: Call,
    ) -> None:
        super().__init__(client, name, retry_budget=retry_budget)
        self._clock = clock
        self._held = held
        self._call = call
        self.left = False

    def update(self, update: Update) -> Written | ConditionFailed:
        """Sends the holder's departure with the items, and any later update as it is."""
        if self.left:
            return super().update(update)
        failed = self.commit([self._update_of(self._on_my_token(update))])
        return Written({}) if failed is None else ConditionFailed(self._still_held(failed[0]))

    def transact(self, transaction: Transaction) -> Written | Cancelled:
        """Sends the holder's departure with the items, and any later transaction as it is."""
        if self.left:
            return super().transact(transaction)
        state = self._update_of(self._on_my_token(transaction.state))
        failed = self.commit([state, self._write_of(transaction.other)])
        if failed is None:
            return Written({})
        state_failed = failed[0].get("Code") == CONDITION_FAILED
        return Cancelled(self._still_held(failed[0]) if state_failed else None)

    def commit(self, own: Sequence[TransactWriteItemTypeDef]) -> list[dict[str, Any]] | None:
        """Sends our writes and the application's items as one new transaction."""
        request = Request(
            own=own,
            items=self._call.items,
            token=str(uuid.uuid4()),
            wall_ms=self._clock.wall_ms(),
            monotonic=self._clock.monotonic(),
        )
        return self.send(request)

    def send(self, request: Request) -> list[dict[str, Any]] | None:
        """Sends a transaction, perhaps again.

        Returns:
            None if it has happened, else DynamoDB's reasons concerning our own writes.

        Raises:
            TransactionRefused: our own writes were in order, the application's were not.
            LockStoreUnavailable: outcome unknown.
        """
        writes = [*request.own, *request.items]
        is_first = not self._call.may_have_happened
        # Before it is sent: after that an interrupt may come, and no answer ever.
        self._call.request = request
        sending = RepeatedRequest(self._retry_budget)
        try:
            sending.send(
                lambda: self._client.transact_write_items(
                    TransactItems=writes, ClientRequestToken=request.token
                )
            )
        except self._client.exceptions.TransactionCanceledException as error:
            self._call.request = None
            reasons = cancellation_reasons(error)
            own, theirs = reasons[: len(request.own)], reasons[len(request.own) :]
            if CONDITION_FAILED in [reason.get("Code") for reason in own]:
                return own
            if all(reason.get("Code") == _NOTHING_WRONG for reason in theirs):
                raise
            raise TransactionRefused(tuple(map(_reason, theirs))) from error
        except (ClientError, ParamValidationError):
            # Not let in. That says nothing of an earlier sending, and a repeat under a new token
            # might write twice.
            if is_first and not sending.repeated:
                self._call.request = None
            raise
        self.left = True
        return None

    def _on_my_token(self, update: Update) -> Update:
        held = self._held
        return guarded(update, owner_id=held.owner_id, fencing_token=held.fencing_token)

    def _still_held(self, reason: dict[str, Any]) -> Item:
        """The lock's item after a failed departure, if it is still this grant that holds.

        Raises:
            LockLost: it is not. Nothing was written.
        """
        item: Item = reason.get("Item", {})
        holder = read_state(item).holder(self._held.owner_id)
        if holder is None or holder.fencing_token != self._held.fencing_token:
            raise lock_lost(self._held)
        return item


def lock_lost(held: Held) -> LockLost:
    """The error of a guarded write whose lock is gone."""
    message = (
        f"lock {held.lock_name!r} is not held any more under fencing token {held.fencing_token}; "
        "nothing was written"
    )
    return LockLost(message)


def _reason(reason: dict[str, Any]) -> CancellationReason:
    return CancellationReason(
        code=reason.get("Code", _NOTHING_WRONG),
        message=reason.get("Message") or "",
        item=reason.get("Item", {}),
    )
