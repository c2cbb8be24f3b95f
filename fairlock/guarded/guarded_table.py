"""A lock table whose next write of the lock has the application's items in its transaction.

    GuardedWrites ──▶ hand_over, as for any release ──▶ GuardedTable: in one transaction
                                                       ├ the write that takes the holder out,
                                                       │ on condition of its fencing token
                                                       └ the application's items

So a lock changes hands by the same code with and without items, and waiters are served alike.

Calls of `transact_write`, remembered until their callers have the answer.

                 call                     forget
    (no call) ─────────▶ under way ─────────────────▶ (no call)     the caller has its answer
                             │  ▲
             abandon, or its │  │ call, with the same items: the repeat asks for the answer
             caller is back  ▼  │
                          abandoned

A call may end without an answer: a reply got lost, a time-out, an interrupt. Then the transaction
may have happened, and a repeat of the call must not make it happen twice. The public call has no
argument by which it names an earlier one, so a repeat is recognized by its items.

Checks the items of an application before they are sent, as boto3 does by itself.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.validate import ParamValidator

from fairlock.aws.aws_clock import AwsClock
from fairlock.aws.lock_table import Cancelled, ConditionFailed, LockTable, Written
from fairlock.aws.retry import (
    CONDITION_FAILED,
    RepeatedRequest,
    RetryBudget,
    cancellation_reasons,
    error_code,
    is_false_condition,
    raise_if_unknown,
)
from fairlock.clock import Clock
from fairlock.errors import (
    CancellationReason,
    FairlockError,
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    TransactionRefused,
)
from fairlock.guarded.conditions import GrantKey
from fairlock.protocol.expressions import Item, Transaction, Update
from fairlock.protocol.items import read_state

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTransaction:
    """One transaction as it is sent, and sent again: byte for byte, under one request token.

    DynamoDB answers a repeat of a transaction that has happened with success, and changes nothing,
    for ten minutes.

    Attributes:
        own: our writes, the lock's item first.
        token: the request token.
        wall_ms: when it was sent first, by the wall clock.
        monotonic: the same, by the monotonic clock.
    """

    own: Sequence[TransactWriteItemTypeDef]
    token: str
    wall_ms: int
    monotonic: float

    def age_seconds(self, clock: Clock) -> float:
        """The greater of two ages: the wall clock may be set, the other sleeps with its host."""
        return max(clock.monotonic() - self.monotonic, (clock.wall_ms() - self.wall_ms) / 1000)


@dataclass(slots=True, eq=False, kw_only=True)
class PendingCall:
    """One call that has no answer yet.

    Attributes:
        items: the application's writes.
        release: whether the lock is given back with them.
        caller: the thread or task that waits for the answer; None once the call is abandoned.
        sent: the transaction that has happened, or may have; None if certainly none has.
        repeats: whether an earlier call with these items was abandoned, and may have happened.
    """

    items: list[TransactWriteItemTypeDef]
    release: bool
    caller: Hashable
    sent: SentTransaction | None = None
    repeats: bool = False

    @property
    def may_have_happened(self) -> bool:
        """Whether its transaction has happened, as far as this process knows."""
        return self.sent is not None


class PendingCalls:
    """The calls of one lock that are under way or abandoned."""

    def __init__(self) -> None:
        self._all: list[PendingCall] = []
        self._mutex = threading.RLock()

    @contextmanager
    def call(
        self,
        items: list[TransactWriteItemTypeDef],
        *,
        release: bool,
        caller: Hashable,
        goes_on_after: type[BaseException] | tuple[()] = (),
    ) -> Iterator[PendingCall]:
        """A new call, or the one that it repeats; abandoned after an error, else forgotten.

        Args:
            items: as of the call.
            release: same.
            caller: same; no two that call at the same time may be equal.
            goes_on_after: the error that leaves the block while the call is still sent elsewhere.
        """
        call = self._begin(items, release=release, caller=caller)
        try:
            yield call
        except BaseException as error:
            self.abandon(call, is_over=not isinstance(error, goes_on_after))
            raise
        self.forget(call)

    def abandon(self, call: PendingCall, *, is_over: bool) -> None:
        """The caller gets no answer; `is_over` if the call has come to its end."""
        call.caller = None
        if is_over and not call.may_have_happened:
            self.forget(call)

    def forget(self, call: PendingCall) -> None:
        """The caller has its answer."""
        with self._mutex:
            if call in self._all:
                self._all.remove(call)

    def _begin(
        self, items: list[TransactWriteItemTypeDef], *, release: bool, caller: Hashable
    ) -> PendingCall:
        """A caller that begins a call is back from its last one, whatever interrupted that."""
        with self._mutex:
            for call in self._all:
                is_free = call.caller is None or call.caller == caller
                if is_free and call.items == items and call.release is release:
                    call.caller, call.repeats = caller, call.may_have_happened
                    return call
            call = PendingCall(items=items, release=release, caller=caller)
            self._all.append(call)
            return call


def require_well_formed(client: DynamoDBClient, items: Sequence[TransactWriteItemTypeDef]) -> None:
    """Raises boto3's error for items that are not what the client's operation takes.

    Needed for the clients of `LockClient`, which send without that check.

    Raises:
        ParamValidationError: names what is wrong.
    """
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if model is None:
        return  # It stands in for a client, in a test.
    shape = model.operation_model("TransactWriteItems").input_shape
    report = ParamValidator().validate({"TransactItems": list(items)}, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())


_NOTHING_WRONG: Final = "None"
_VALUE: Final = re.compile(r", value: .*?, (?=type: )", re.DOTALL)
"""What boto3 shows of a parameter that it does not take."""
_PERHAPS_WRITTEN: Final = (
    "AWS refused a repeat of the transaction ({error}), and the first sending may have been "
    "written; the outcome is unknown, repeat the call"
)


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
                self._client.transact_write_items,
                TransactItems=writes,
                ClientRequestToken=transaction.token,
            )
            self._when(response, request)
        except (BotoCoreError, ClientError) as error:
            raise_if_unknown(error)
            if not isinstance(error, ClientError | ParamValidationError):
                raise  # For want of credentials, for instance.
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
