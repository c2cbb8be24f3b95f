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
from functools import partial
from typing import TYPE_CHECKING, Any

from fairlock.errors import LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.wire.rules import limit_of

if TYPE_CHECKING:
    from fairlock import Lock, LockClient


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
        owner = self._new_owner()
        limit = limit_of(options.get("limit", 1), shared=options.get("shared", False))
        call = partial(client.acquire, lock_name, **options)
        _, lock = self._told(Kind.ACQUIRE, lock_name, owner, call, limit=limit)
        return owner, lock

    def heartbeat(self, lock: Lock, owner: str) -> Answer:
        answer, _ = self._told(Kind.HEARTBEAT, lock.name, owner, lock.heartbeat, lock=lock)
        return answer

    def set_ceiling(self, client: LockClient, lock_name: str, limit: int | None) -> None:
        """Limits, pauses (0) or resumes (None) the lock."""
        if limit is None:
            call = partial(client.resume, lock_name)
        elif limit:
            call = partial(client.set_limit, lock_name, limit, reason="a test")
        else:
            call = partial(client.pause, lock_name, reason="a test")
        self._told(Kind.CEILING, lock_name, self._new_owner(), call, limit=limit)

    def release(self, lock: Lock, owner: str) -> Answer:
        answer, _ = self._told(Kind.RELEASE, lock.name, owner, lock.release)
        return answer

    def _new_owner(self) -> str:
        return f"{os.getpid()}-{next(self._numbers)}"

    def _told(
        self,
        kind: Kind,
        lock_name: str,
        owner: str,
        call: Callable[[], Any],
        *,
        lock: Lock | None = None,
        limit: int | None = None,
    ) -> tuple[Answer, Any]:
        """What the caller is told, and what it gets."""
        began, answer, result = time.monotonic(), Answer.DONE, None
        try:
            result = call()
        except LockWaitTimeout:
            answer = Answer.REFUSED
        except LockStoreUnavailable:
            answer = Answer.UNKNOWN
        except LockLost as lost:
            if "its lease is over" in str(lost):  # By the client's own clock: no one was asked.
                self._promised[owner] = time.monotonic()
            answer = self._refused(owner)
        if result is False:  # A lock that was not held when it was released.
            answer = self._refused(owner)
        lock = result if kind is Kind.ACQUIRE else lock
        ended = time.monotonic()
        noted = Call(
            kind=kind,
            owner=owner,
            answer=answer,
            began=began,
            ended=math.inf if answer is Answer.UNKNOWN else ended,
            token=lock.fencing_token if lock is not None and kind is Kind.ACQUIRE else None,
            held_until=ended + lock.remaining if lock is not None else math.inf,
            limit=limit,
        )
        self.histories[lock_name].append(noted)
        if answer is Answer.DONE and lock is not None:
            self._promised[owner] = noted.held_until
        return answer, result

    def _refused(self, owner: str) -> Answer:
        """What a refusal tells of the lock.

        Nothing, after the end that its holder was promised last: then the holder itself counts the
        lock as lost. A renewal whose answer comes late promises less than the one before.
        """
        is_over = self._promised[owner] <= time.monotonic()
        return Answer.UNKNOWN if is_over else Answer.REFUSED
