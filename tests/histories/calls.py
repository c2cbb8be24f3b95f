"""Calls of lock clients with their answers: what a history is made of."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from fairlock.errors import LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.wire.rules import limit_of

if TYPE_CHECKING:
    from fairlock import Lock, LockClient


_T = TypeVar("_T")


class Kind(Enum):
    """What was called."""

    ACQUIRE = "acquire"
    HEARTBEAT = "heartbeat"
    RELEASE = "release"
    CEILING = "ceiling"
    """An operator limits, pauses or resumes the lock; the owner names that call."""


class Answer(Enum):
    """What the caller was told. DONE means granted, renewed or released."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call on one lock. All times are seconds of one clock.

    Attributes:
        owner: names the acquisition that the call belongs to.
        began: before the call was made.
        ended: after it was answered; infinite if the outcome is unknown, because the call may still
            take effect later.
        token: the fencing token of a grant.
        held_until: until when a grant or a renewal has promised the lock.
        limit: of an acquire, how many may hold beside its owner; None for the limit of all. Of a
            ceiling, what it is set to; None lifts it.
    """

    kind: Kind
    owner: str
    answer: Answer
    began: float
    ended: float
    token: int | None = None
    held_until: float = math.inf
    limit: int | None = None


@dataclass
class Recorder:
    """Calls a `LockClient` and its locks, and remembers each call with its answer.

    May be used by several threads. `time.monotonic` is the same for all processes of a machine.

    Attributes:
        histories: the calls of each lock name.
    """

    histories: defaultdict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _promised: dict[str, float] = field(default_factory=dict)
    """By owner: until when the last answer has promised the lock."""

    def acquire(
        self,
        client: LockClient,
        lock_name: str,
        **options: Any,  # noqa: ANN401 - as `LockClient.acquire` takes them
    ) -> tuple[str, Lock | None]:
        """Acquires; returns the acquisition's name, and the lock if it was granted."""
        owner, began = f"{os.getpid()}-{next(self._numbers)}", time.monotonic()
        answer, lock = _told(lambda: client.acquire(lock_name, **options))
        limit = limit_of(options.get("limit", 1), shared=options.get("shared", False))
        self._note(lock_name, Kind.ACQUIRE, owner, answer, began=began, lock=lock, limit=limit)
        return owner, lock

    def heartbeat(self, lock: Lock, owner: str) -> Answer:
        began = time.monotonic()
        try:
            answer, _ = _told(lock.heartbeat)
        except LockLost as lost:
            if "its lease is over" in str(lost):  # By the client's own clock: no one was asked.
                self._promised[owner] = time.monotonic()
            answer = self._refused(owner)
        self._note(lock.name, Kind.HEARTBEAT, owner, answer, began=began, lock=lock)
        return answer

    def set_ceiling(self, client: LockClient, lock_name: str, limit: int | None) -> None:
        """Limits, pauses (0) or resumes (None) the lock."""
        owner, began = f"{os.getpid()}-{next(self._numbers)}", time.monotonic()
        if limit is None:
            answer, _ = _told(lambda: client.resume(lock_name))
        elif limit:
            answer, _ = _told(lambda: client.set_limit(lock_name, limit, reason="a test"))
        else:
            answer, _ = _told(lambda: client.pause(lock_name, reason="a test"))
        self._note(lock_name, Kind.CEILING, owner, answer, began=began, limit=limit)

    def release(self, lock: Lock, owner: str) -> Answer:
        began = time.monotonic()
        answer, was_held = _told(lock.release)
        if was_held is False:
            answer = self._refused(owner)
        self._note(lock.name, Kind.RELEASE, owner, answer, began=began)
        return answer

    def _refused(self, owner: str) -> Answer:
        """What a refusal tells of the lock.

        Nothing, after the end that its holder was promised last: then the holder itself counts the
        lock as lost. A renewal whose answer comes late promises less than the one before.
        """
        is_over = self._promised[owner] <= time.monotonic()
        return Answer.UNKNOWN if is_over else Answer.REFUSED

    def _note(
        self,
        lock_name: str,
        kind: Kind,
        owner: str,
        answer: Answer,
        *,
        began: float,
        lock: Lock | None = None,
        limit: int | None = None,
    ) -> None:
        ended = time.monotonic()
        call = Call(
            kind=kind,
            owner=owner,
            answer=answer,
            began=began,
            ended=math.inf if answer is Answer.UNKNOWN else ended,
            token=lock.fencing_token if lock is not None and kind is Kind.ACQUIRE else None,
            held_until=ended + lock.remaining if lock is not None else math.inf,
            limit=limit,
        )
        self.histories[lock_name].append(call)
        if answer is Answer.DONE and lock is not None:
            self._promised[owner] = call.held_until


def _told(call: Callable[[], _T]) -> tuple[Answer, _T | None]:
    """What the caller is told, and what it gets."""
    try:
        return Answer.DONE, call()
    except LockWaitTimeout:
        return Answer.REFUSED, None
    except LockStoreUnavailable:
        return Answer.UNKNOWN, None
