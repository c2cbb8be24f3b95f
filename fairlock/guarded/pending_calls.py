"""Calls of `transact_write`, remembered until their callers have the answer.

                 call                     forget
    (no call) ─────────▶ under way ─────────────────▶ (no call)     the caller has its answer
                             │  ▲
             abandon, or its │  │ call, with the same items: the repeat asks for the answer
             caller is back  ▼  │
                          abandoned

A call may end without an answer: a reply got lost, a time-out, an interrupt. Then the transaction
may have happened, and a repeat of the call must not make it happen twice. The public call has no
argument by which it names an earlier one, so a repeat is recognized by its items.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlock.clock import Clock

if TYPE_CHECKING:
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
