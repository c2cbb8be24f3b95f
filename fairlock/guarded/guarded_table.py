"""A lock table whose next write of the lock has the application's items in its transaction.

    GuardedWrites ──▶ hand_over, as for any release ──▶ GuardedTable: in one transaction
                                                       ├ the write that takes the holder out,
                                                       │ on condition of its fencing token
                                                       └ the application's items

So a lock changes hands by the same code with and without items, and waiters are served alike.

A transaction may end without an answer: a reply got lost, a time-out, an interrupt. It stays open
then, because it may have happened, or may happen yet: a copy of it can be under way for long.

                 sent                  success
    (nothing) ─────────▶ open ────────────────────▶ committed
        ▲                  │  ▲
        │ refused, and     │  │ no answer; or refused, and an earlier sending had no answer:
        │ sent only once   ▼  │ only the end of the grant closes it
        └──────────────────┘──┘

The items of an application are checked before they are sent, as boto3 does by itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.validate import ParamValidator

from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.aws.retry import (
    CONDITION_FAILED,
    RepeatedRequest,
    RetryBudget,
    cancellation_reasons,
    error_code,
    is_false_condition,
    raise_if_unknown,
)
from fairlock.clock import AwsClock, Clock
from fairlock.errors import (
    CancellationReason,
    FairlockError,
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    TransactionRefused,
)
from fairlock.guarded.conditions import HOLDS_ALONE, GrantKey, holds_alone_names, require_alone
from fairlock.protocol.items import read_state
from fairlock.protocol.outcomes import HandOff
from fairlock.protocol.table_requests import Item, Transaction, Update

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTransaction:
    """One transaction as it is sent, and sent again, under one request token.

    DynamoDB answers a repeat with success for ten minutes. The `own` writes are ours, the lock's
    first.
    """

    own: Sequence[TransactWriteItemTypeDef]
    token: str
    wall_ms: int
    monotonic: float
    hand_off: HandOff | None = None

    def age_seconds(self, clock: Clock) -> float:
        """The greater of two ages: the wall clock may be set, the other sleeps with its host."""
        return max(clock.monotonic() - self.monotonic, (clock.wall_ms() - self.wall_ms) / 1000)


@dataclass(slots=True, eq=False, kw_only=True)
class GuardedCall:
    """One write of the application, and what this process knows of its fate.

    Attributes:
        items: the application's writes; none once they are written.
        request_token: for the transaction, if it is always the same one; None takes a new one each.
        digest: of its contents, by which a repeat with its token is recognized; empty without one.
        began: when it was first called, by the monotonic clock.
        open: the transactions sent for it that may have happened, or may happen yet.
        untold: the hand-off of one that was sent again and has happened: its waiter may not know.
        is_answered: whether a call that sent it has ended.
    """

    items: list[TransactWriteItemTypeDef]
    release: bool
    request_token: str | None = None
    digest: str = ""
    began: float = 0.0
    open: list[SentTransaction] = field(default_factory=list)
    untold: HandOff | None = None
    committed: bool = False
    is_answered: bool = False

    @property
    def may_have_happened(self) -> bool:
        """Whether it is not certain that nothing was written, and nothing will be."""
        return self.committed or bool(self.open)


def require_well_formed(client: DynamoDBClient, items: Sequence[TransactWriteItemTypeDef]) -> None:
    """Raises boto3's error for malformed items: the clients of `LockClient` do not check them."""
    model = getattr(getattr(client, "meta", None), "service_model", None)
    if model is None:
        return  # It replaces a client, in a test.
    shape = model.operation_model("TransactWriteItems").input_shape
    report = ParamValidator().validate({"TransactItems": list(items)}, shape)
    if report.has_errors():
        raise ParamValidationError(report=report.generate_report())


_NOTHING_WRONG: Final = "None"
_VALUE: Final = re.compile(r", value: .*?, (?=type: )", re.DOTALL)
"""What boto3 shows of a parameter that it does not take."""
_REPEATABLE_SECONDS: Final = 9 * 60
"""DynamoDB knows a request token for ten minutes after the request; a minute is for its way."""
_REFUSED_NOW: Final = (
    "DynamoDB refused the transaction ({error}), but an earlier sending of it had no answer and "
    "may be written yet; the outcome is unknown"
)


class GuardedTable(LockTable):
    """A lock table that adds the application's items to the next write of one holder.

    Once that transaction has happened it is an ordinary lock table.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        name: str,
        *,
        retry_budget: RetryBudget,
        aws_clock: AwsClock,
        grant: GrantKey,
        call: GuardedCall,
    ) -> None:
        super().__init__(client, name, retry_budget=retry_budget, aws_clock=aws_clock)
        self._clock = retry_budget.clock
        self._grant = grant
        self._call = call
        self._items = call.items  # Kept for a sending beside the one that commits.
        self._hand_off: HandOff | None = None

    def note_sending(self, hand_off: HandOff) -> None:
        """The next transaction hands the lock to a waiter: see `LockContext`."""
        self._hand_off = hand_off

    def update(self, update: Update) -> Written | ConditionFailed:
        """Sends the holder's departure with the items, and any later update as it is."""
        if self.has_committed():
            return super().update(update)
        failed = self.commit([self._alone(update)])
        return Written({}) if failed is None else ConditionFailed(self.still_held(failed[0]))

    def transact(self, transaction: Transaction) -> Written | ConditionFailed:
        """Sends the holder's departure with the items, and any later transaction as it is."""
        if self.has_committed():
            return super().transact(transaction)
        state = self._alone(transaction.state)
        failed = self.commit([state, self._write_of(transaction.other)])
        if failed is None:
            return Written({})
        if failed[0].get("Code") != CONDITION_FAILED:
            return ConditionFailed({}, elsewhere=True)
        return ConditionFailed(self.still_held(failed[0]))

    def has_committed(self) -> bool:
        """Whether the items are written; asks DynamoDB again about transactions that are open.

        A new transaction must never be sent beside an open one: both may happen, under two request
        tokens.
        """
        return self._call.committed or any(self.send(sent) is None for sent in [*self._call.open])

    def commit(self, own: Sequence[TransactWriteItemTypeDef]) -> list[dict[str, Any]] | None:
        """Sends our writes and the application's items as one new transaction."""
        hand_off, self._hand_off = self._hand_off, None
        sent = SentTransaction(
            own=own,
            token=self._call.request_token or str(uuid.uuid4()),
            wall_ms=self._clock.wall_ms(),
            monotonic=self._clock.monotonic(),
            hand_off=hand_off,
        )
        return self.send(sent)

    def send(self, transaction: SentTransaction) -> list[dict[str, Any]] | None:
        """Sends a transaction, perhaps again; returns DynamoDB's reasons concerning our writes.

        None if it has happened. Raises `TransactionRefused` if the application's writes were not in
        order, and `LockStoreUnavailable` if the outcome is unknown.
        """
        call = self._call
        is_repeat = transaction in call.open
        if is_repeat and transaction.age_seconds(self._clock) > _REPEATABLE_SECONDS:
            # DynamoDB may have forgotten the request token, and would write a second time.
            raise LockStoreUnavailable(
                f"lock {self._grant.lock_name!r}: the outcome of a transaction is unknown, and "
                "DynamoDB does not remember it any more; read the items to find out"
            )
        if not is_repeat:
            # Before it is sent: an interrupt may come instead of the answer.
            call.open.append(transaction)
        request = RepeatedRequest(self._retry_budget)
        try:
            require_well_formed(self._client, self._items)
            response = request.send(
                self._client.transact_write_items,
                TransactItems=[*transaction.own, *self._items],
                ClientRequestToken=transaction.token,
            )
            self._when(response, request)
        except (BotoCoreError, ClientError) as error:
            raise_if_unknown(error)
            if not isinstance(error, ClientError | ParamValidationError):
                raise  # For want of credentials, for instance.
            if call.committed:
                return None  # Another thread has sent the same call, and later.
            # The refusal answers one sending. An earlier one, of ours or of botocore, may be under
            # way still, and land when its conditions hold again.
            if not is_repeat and not request.repeated:
                with suppress(ValueError):  # The other thread has cleared it in this moment.
                    call.open.remove(transaction)
            if isinstance(error, ClientError) and is_false_condition(error):
                self._when(error.response, request)  # The end of the next lease is written by it.
                return self._own_reasons(transaction, error)
            if call.open:
                raise LockStoreUnavailable(_REFUSED_NOW.format(error=error)) from error
            raise self._refusal(error) from error
        # Of the transactions of a call only one can happen: a release ends the grant that all of
        # them depend on, and others have one request token. So none is to be asked about any more.
        call.committed = True
        call.untold = transaction.hand_off if is_repeat else None
        call.open.clear()
        call.items = []
        return None

    def _own_reasons(
        self, transaction: SentTransaction, error: ClientError
    ) -> list[dict[str, Any]]:
        """DynamoDB's reasons concerning our own writes, of a transaction that was cancelled."""
        reasons = cancellation_reasons(error)
        own, theirs = reasons[: len(transaction.own)], reasons[len(transaction.own) :]
        if CONDITION_FAILED in [reason.get("Code") for reason in own]:
            return own
        if all(reason.get("Code") == _NOTHING_WRONG for reason in theirs):
            raise self._misconfigured(error) from error
        refused = TransactionRefused(tuple(map(_reason, theirs)))
        if self._call.open:
            raise LockStoreUnavailable(_REFUSED_NOW.format(error=refused.shown)) from refused
        raise refused from error

    def _refusal(self, error: ClientError | ParamValidationError) -> FairlockError:
        """The error for a transaction that AWS or boto3 did not take, of which nothing happened."""
        code = error_code(error)
        if code == "IdempotentParameterMismatchException":
            return other_contents()
        if code in {"", "ValidationException"}:
            said = _VALUE.sub(", ", str(error))
            rule = f"must be a valid transaction of values such as {{'S': 'text'}}: {said}"
            return InvalidRequest(field="items", rule=rule, value=self._items)
        writes = [write for item in self._items for write in cast("Any", item).values()]
        tables = ", ".join(sorted({repr(write["TableName"]) for write in writes}))
        message = (
            f"the transaction of the items (tables {tables}) and of lock table "
            f"{self._name!r} in {self._region() or 'no known region'} was refused; check that each "
            "table is there, in this account and region, and that the caller has permission for "
            f"each write and a ConditionCheck of the lock ({error})"
        )
        return LockStoreMisconfigured(
            message, table_name=self._name, region=self._region(), code=code
        )

    def _alone(self, update: Update) -> TransactWriteItemTypeDef:
        """The holder's departure, on condition that it does not share the lock."""
        condition = f"{update.condition} AND {HOLDS_ALONE}"
        names = {**update.names, **holds_alone_names(self._grant.owner_id)}
        return self._update_of(replace(update, condition=condition, names=names))

    def still_held(self, reason: dict[str, Any]) -> Item:
        """The lock's item after a condition of ours failed, if this grant still holds it, alone."""
        item: Item = reason.get("Item", {})
        holder = read_state(item).holder(self._grant.owner_id)
        if holder is None or holder.fencing_token != self._grant.fencing_token:
            raise lock_lost(self._grant)
        require_alone(shared=holder.shared)
        return item


def other_contents() -> InvalidRequest:
    """The error of a write token that names another write."""
    rule = "must be new for each write: another write of this lock has it, and other contents"
    return InvalidRequest(field="token", rule=rule, show_text=False)


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
