"""A lock table whose next write of the lock has the application's items in its transaction.

    GuardedWrites ──▶ hand_over, as for any release ──▶ GuardedTable: in one transaction
                                                       ├ the write that takes the holder out,
                                                       │ on condition of its fencing token
                                                       └ the application's items

So a lock changes hands by the same code with and without items, and waiters are served alike.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError, ParamValidationError

from fairlock.dynamodb.aws_clock import AwsClock
from fairlock.dynamodb.failures import (
    CONDITION_FAILED,
    cancellation_reasons,
    error_code,
    is_false_condition,
)
from fairlock.dynamodb.lock_table import Cancelled, ConditionFailed, LockTable, Written
from fairlock.dynamodb.retry import RepeatedRequest, RetryBudget
from fairlock.errors import (
    CancellationReason,
    FairlockError,
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    TransactionRefused,
)
from fairlock.guarded.item_check import require_well_formed
from fairlock.guarded.pending_calls import PendingCall, SentTransaction
from fairlock.protocol.items import read_state
from fairlock.protocol.requests import Item, Transaction, Update
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

_NOTHING_WRONG: Final = "None"
_VALUE: Final = re.compile(r", value: .*?, (?=type: )", re.DOTALL)
"""What boto3 shows of a parameter that it does not take."""
_PERHAPS_WRITTEN: Final = (
    "AWS refused a repeat of the transaction ({error}), and the first sending may have been "
    "written; the outcome is unknown, repeat the call"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantKey:
    """What names one grant: an owner that acquires again gets another fencing token.

    Raises:
        InvalidRequest: a part breaks its rule.
    """

    lock_name: str
    owner_id: str = field(repr=False)
    fencing_token: int

    def __post_init__(self) -> None:
        """Checks all rules, and keeps plain text."""
        lock_name = rules.plain_text("lock_name", rules.LOCK_NAME, self.lock_name)
        object.__setattr__(self, "lock_name", lock_name)
        owner_id = rules.plain_text("owner_id", rules.OWNER_ID, self.owner_id)
        object.__setattr__(self, "owner_id", owner_id)
        rules.require("fencing_token", rules.FENCING_TOKEN, self.fencing_token)


class GuardedTable(LockTable):
    """A lock table that adds the application's items to the next write of one holder.

    Attributes:
        committed: whether that transaction has happened; from then on it is an ordinary lock table.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        retry_budget: RetryBudget,
        aws_clock: AwsClock,
        grant: GrantKey,
        call: PendingCall,
    ) -> None:
        super().__init__(client, name, retry_budget=retry_budget, aws_clock=aws_clock)
        self._clock = retry_budget.clock
        self._grant = grant
        self._call = call
        self.committed = False

    def update(self, update: Update) -> Written | ConditionFailed:
        """Sends the holder's departure with the items, and any later update as it is."""
        if self.committed:
            return super().update(update)
        failed = self.commit([self._update_of(update)])
        return Written({}) if failed is None else ConditionFailed(self._still_held(failed[0]))

    def transact(self, transaction: Transaction) -> Written | Cancelled:
        """Sends the holder's departure with the items, and any later transaction as it is."""
        if self.committed:
            return super().transact(transaction)
        state = self._update_of(transaction.state)
        failed = self.commit([state, self._write_of(transaction.other)])
        if failed is None:
            return Written({})
        state_failed = failed[0].get("Code") == CONDITION_FAILED
        return Cancelled(self._still_held(failed[0]) if state_failed else None)

    def commit(self, own: Sequence[TransactWriteItemTypeDef]) -> list[dict[str, Any]] | None:
        """Sends our writes and the application's items as one new transaction."""
        token, wall_ms = str(uuid.uuid4()), self._clock.wall_ms()
        monotonic = self._clock.monotonic()
        return self.send(
            SentTransaction(own=own, token=token, wall_ms=wall_ms, monotonic=monotonic)
        )

    def send(self, transaction: SentTransaction) -> list[dict[str, Any]] | None:
        """Sends a transaction, perhaps again.

        Returns:
            None if it has happened, else DynamoDB's reasons concerning our own writes.

        Raises:
            TransactionRefused: our own writes were in order, the application's were not.
            LockStoreUnavailable: outcome unknown.
        """
        writes = [*transaction.own, *self._call.items]
        is_first = not self._call.may_have_happened
        # Before it is sent: an interrupt may come instead of the answer.
        self._call.sent = transaction
        request = RepeatedRequest(self._retry_budget)
        try:
            require_well_formed(self._client, self._call.items)
            response = request.send(
                lambda: self._client.transact_write_items(
                    TransactItems=writes, ClientRequestToken=transaction.token
                )
            )
            self._when(response, request)
        except (ClientError, ParamValidationError) as error:
            if isinstance(error, ClientError) and is_false_condition(error):
                self._when(error.response, request)  # The end of the next lease is written by it.
                return self._own_reasons(transaction, error)
            if not is_first or request.repeated:
                # This sending was refused. An earlier one may have been written, and a repeat
                # under a new token might write twice.
                raise LockStoreUnavailable(_PERHAPS_WRITTEN.format(error=error)) from error
            self._call.sent = None
            raise self._refusal(error) from error
        self.committed = True
        return None

    def _own_reasons(
        self, transaction: SentTransaction, error: ClientError
    ) -> list[dict[str, Any]]:
        """DynamoDB's reasons concerning our own writes, of a transaction that was cancelled."""
        self._call.sent = None
        reasons = cancellation_reasons(error)
        own, theirs = reasons[: len(transaction.own)], reasons[len(transaction.own) :]
        if CONDITION_FAILED in [reason.get("Code") for reason in own]:
            return own
        if all(reason.get("Code") == _NOTHING_WRONG for reason in theirs):
            raise self._misconfigured(error) from error
        raise TransactionRefused(tuple(map(_reason, theirs))) from error

    def _refusal(self, error: ClientError | ParamValidationError) -> FairlockError:
        """The error for a transaction that AWS or boto3 did not take, of which nothing happened."""
        code = error_code(error)
        if code in {"", "ValidationException"}:
            rule = f"are no valid transaction: {_VALUE.sub(', ', str(error))}"
            return InvalidRequest(field="items", rule=rule, value=self._call.items)
        message = (
            f"the transaction of the items and of lock table {self._name!r} was refused; it needs "
            f"each table, and permission for each write and a ConditionCheck of the lock ({error})"
        )
        return LockStoreMisconfigured(message, table_name=self._name, code=code)

    def _still_held(self, reason: dict[str, Any]) -> Item:
        """The lock's item after a failed departure, if this grant still holds the lock.

        Raises:
            LockLost: it does not. Nothing was written.
        """
        item: Item = reason.get("Item", {})
        holder = read_state(item).holder(self._grant.owner_id)
        if holder is None or holder.fencing_token != self._grant.fencing_token:
            raise lock_lost(self._grant)
        return item


def lock_lost(grant: GrantKey) -> LockLost:
    """The error of a guarded write whose lock is gone."""
    message = (
        f"lock {grant.lock_name!r} is not held any more under fencing token {grant.fencing_token}; "
        "nothing was written"
    )
    return LockLost(message)


def _reason(reason: dict[str, Any]) -> CancellationReason:
    return CancellationReason(
        code=reason.get("Code", _NOTHING_WRONG),
        message=reason.get("Message") or "",
        item=reason.get("Item", {}),
    )
