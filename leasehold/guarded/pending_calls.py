"""Calls of `transact_write`, kept until their callers have the answer.

                 begin                    forget
    (no call) ─────────▶ under way ─────────────────▶ (no call)     the caller was told
                             │  ▲
             abandon, or its │  │ begin, with the same items: it asks for the answer
             caller is back  ▼  │
                         nobody was told

A caller may be gone before its answer: a reply got lost, a time-out, an interrupt. Then the
transaction may have happened, and the same call again must not make it happen twice.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leasehold.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One transaction as it is sent, and sent again: byte for byte, under one request token.

    DynamoDB answers a repeat of a transaction that has happened with success, and changes nothing,
    for ten minutes.

    Attributes:
        own: our writes, the lock's item first.
        items: the application's.
        token: the request token.
        wall_ms: when it was sent first, by the wall clock.
        monotonic: the same, by the monotonic clock.
    """

    own: Sequence[TransactWriteItemTypeDef]
    items: Sequence[TransactWriteItemTypeDef]
    token: str
    wall_ms: int
    monotonic: float

    def age_seconds(self, clock: Clock) -> float:
        """The greater of two ages: the wall clock may be set, the other sleeps with its host."""
        return max(clock.monotonic() - self.monotonic, (clock.wall_ms() - self.wall_ms) / 1000)


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call.

    Attributes:
        items: the application's writes.
        release: whether the lock is given back with them.
        caller: who waits for the answer; None if nobody does any more.
        request: the transaction that has happened, or may have; None if certainly none has.
        repeats: whether it was begun to ask for the answer that an earlier caller did not get.
    """

    items: list[TransactWriteItemTypeDef]
    release: bool
    caller: Hashable
    request: Request | None = None
    repeats: bool = False

    @property
    def may_have_happened(self) -> bool:
        """Whether its transaction has happened, as far as anybody knows."""
        return self.request is not None


class Calls:
    """The calls of one lock that are under way, and those of which nobody was told."""

    def __init__(self) -> None:
        self._all: list[Call] = []
        self._beginning = threading.RLock()

    def begin(
        self, items: list[TransactWriteItemTypeDef], *, release: bool, caller: Hashable
    ) -> Call:
        """A new call, or the one that this call repeats.

        A caller that begins another call has left its last one, whatever interrupted that.
        """
        with self._beginning:
            for call in self._all:
                is_free = call.caller is None or call.caller == caller
                if is_free and call.items == items and call.release is release:
                    call.caller, call.repeats = caller, call.may_have_happened
                    return call
            call = Call(items=items, release=release, caller=caller)
            self._all.append(call)
            return call

    def abandon(self, call: Call, *, is_over: bool) -> None:
        """The caller is gone without its answer; `is_over` if the call has come to its end."""
        call.caller = None
        if is_over and not call.may_have_happened:
            self.forget(call)

    def forget(self, call: Call) -> None:
        """The caller has its answer."""
        with self._beginning:
            if call in self._all:
                self._all.remove(call)
