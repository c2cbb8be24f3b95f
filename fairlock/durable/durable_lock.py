"""One acquisition of a durable execution: its durable operations, in their order.

    step      enter          makes the owner_id, and notes the time of entry
    step      acquire 1      joins the queue unless the lock is granted
    callback  granted 1  ┐   once for each fallback period, until the lock is granted:
    step      acquire 2  ┘   names the callback, and finds a grant whose push was lost
    step      granted at     with a `max_hold`; and `time` of each `check`, and before the release
    step      release        or `give up`, which leaves the queue and gives back what came meanwhile

A function may be killed between any two of them, and replays from its start. What a replay must
find again (the owner_id above all) is recorded by a step before it is used, and each step may be
repeated. A step records plain values, never an exception: on replay the same values give the same
way. What a repeat may cure is raised inside the step, which the SDK then repeats.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict, cast

from aws_durable_execution_sdk_python import CallbackError, DurableContext, StepContext, StepError
from aws_durable_execution_sdk_python.config import (
    CallbackConfig,
    Duration,
    StepConfig,
    StepSemantics,
)
from aws_durable_execution_sdk_python.retries import RetryStrategyConfig, create_retry_strategy

from fairlock.durable.lock_functions import Json, LockRequests, error_named, text_of
from fairlock.errors import (
    InvalidRequest,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
    Superseded,
)

_PAUSES: Final = RetryStrategyConfig(
    max_attempts=8, initial_delay=Duration.from_seconds(1), max_delay=Duration.from_seconds(30)
)
REPEATED: Final = StepConfig(retry_strategy=create_retry_strategy(_PAUSES))
"""For a call whose repeats need not be counted: its start is recorded in the background."""
REPEATS_COUNTED: Final = StepConfig(
    retry_strategy=create_retry_strategy(_PAUSES),
    step_semantics=StepSemantics.AT_MOST_ONCE_PER_RETRY,
)
"""For a call that must know whether it is a repeat: an interrupted call counts as an attempt."""


class Failure(TypedDict):
    """An error that a repeat does not cure: its class name and its text, `text_of`."""

    kind: str
    message: str


class Answer(TypedDict, total=False):
    """What is recorded of an answer to acquire, or to release.

    Attributes:
        is_repeat: whether an earlier call was sent whose outcome is unknown: it may be granted yet,
            or have released the lock.
        detail: what else is to be said: that the lock is paused, for instance.
        left_seconds: until the longest wait is over, by the clock of the step.
    """

    fencing_token: int | None
    reason: str
    is_repeat: bool
    holders: list[str]
    detail: str
    newest: int
    left_seconds: float
    released: bool
    failure: Failure


_SUPERSEDED: Final = "SUPERSEDED"
_BUSY: Final = frozenset({"HELD", "QUEUE_FULL"})
_WAITING: Final = frozenset({"QUEUED", "QUEUE_FULL"})
_FOR_EVER: Final = 400 * 86_400
"""Longer than an execution lasts, in seconds: a call that does not wait is never too late."""
_LONGEST_NAME: Final = 180


def _operation(lock_name: str, purpose: str) -> str:
    """The name of an operation, the same on a replay: at most 256 characters of ASCII."""
    lock_name = lock_name.encode("ascii", "backslashreplace").decode()
    return f"{lock_name[:_LONGEST_NAME]}: {purpose}"


def _note_time(_: object) -> float:
    return time.time()


@dataclass(frozen=True, slots=True)
class DurableLock:
    """A lock that this part of a durable execution holds. The same on each replay.

    Attributes:
        name: the lock's name.
        fencing_token: the token of this grant, higher than those of all grants of this name before.
        owner_id: names this acquisition, and proves ownership: for guarded writes. Do not log it.
    """

    name: str
    fencing_token: int
    owner_id: str = field(repr=False)
    _max_hold: int | None = field(default=None, repr=False)
    _granted_at: float = field(default=0.0, repr=False)

    def check(self, context: DurableContext) -> None:
        """Raises `LockLost` if `max_hold` is over; one durable operation, or none without it."""
        if self._max_hold is None:
            return
        now: float = context.step(_note_time, name=_operation(self.name, "time"))
        if now - self._granted_at >= self._max_hold:
            raise LockLost(f"lock {self.name!r}: its max_hold of {self._max_hold} s is over")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for, with the fields of each acquire; spans in seconds."""

    name: str
    request: Json
    max_wait: int | None
    fallback: int
    service: LockRequests
    max_hold: int | None


class _Entry(TypedDict):
    owner_id: str
    entered_at: float


@dataclass(slots=True)
class Acquisition:
    """Acquires and releases once; created again on each replay."""

    context: DurableContext
    options: Options
    _entry: _Entry = field(init=False)
    _lock: DurableLock = field(init=False)
    _asked: int = 0
    _holders: list[str] = field(default_factory=list)
    _detail: str = ""

    def enter(self) -> None:
        """Records who asks, and since when. The contexts around this one are recorded then, too."""
        self._entry = self.context.step(_enter, name=_operation(self.options.name, "enter"))

    def acquire(self) -> DurableLock | None:
        """Returns the lock, now or after a suspension; None if it is busy and no one is to wait."""
        try:
            answer = self._wait() if self.options.max_wait is not None else self._ask()
        except (StepError, InvalidRequest, LockStoreMisconfigured) as error:
            # It may hold the lock, or wait for it. So it may after a first call that was refused:
            # the function may have sent that call before, and died.
            self._leave("give up", entered=True)
            if not isinstance(error, StepError):
                raise
            message = f"lock {self.options.name!r}: the lock service did not answer: {error}"
            raise LockStoreUnavailable(message) from error
        token = answer["fencing_token"]
        if token is not None:
            self._lock = self._granted(token)
            return self._lock
        if answer["reason"] == "ALREADY_RELEASED":
            raise LockLost(
                f"lock {self.options.name!r}: this acquisition was released while it waited"
            )
        is_busy = self.options.max_wait is None and answer["reason"] in _BUSY
        if not is_busy or answer["is_repeat"]:  # An earlier sending may still be granted.
            self._leave("give up", entered=True)
        if answer["reason"] == _SUPERSEDED:
            raise self._superseded(answer["newest"])
        if not is_busy:
            raise self._too_late()
        return None

    def release(self) -> None:
        """Gives the lock back; raises `LockLost` if it was lost, or its max_hold is over."""
        late = None
        try:
            if self.options.max_hold is not None:
                self._lock.check(self.context)
        except LockLost as lost:
            late = lost
        # Released all the same: its time is over, not its grant, and the next in the queue waits
        # for it.
        departure = self._leave("release", entered=False)
        if late is not None:
            raise late
        if departure and not departure["released"] and not departure["is_repeat"]:
            raise LockLost(
                f"lock {self.options.name!r} was not held any more when its work was done"
            )

    def _granted(self, token: int) -> DurableLock:
        name, owner_id, max_hold = self.options.name, self._entry["owner_id"], self.options.max_hold
        granted_at = 0.0
        if max_hold is not None:
            granted_at = self.context.step(_note_time, name=_operation(name, "granted at"))
        return DurableLock(name, token, owner_id, max_hold, granted_at)

    def _wait(self) -> Answer:
        answer = self._ask()
        while _is_waiting(answer):
            is_last = answer["left_seconds"] <= self.options.fallback
            # A replay has the callback already, and does not ask.
            seconds = max(1, min(self.options.fallback, round(self._deadline - time.time())))
            callback = self.context.create_callback(
                name=_operation(self.options.name, f"granted {self._asked}"),
                config=CallbackConfig(timeout=Duration.from_seconds(seconds)),
            )
            answer = self._ask(callback.callback_id)
            if not _is_waiting(answer):
                break
            try:
                pushed = callback.result()
            except CallbackError:
                if is_last:
                    break
                continue  # It may be granted, and the push be lost.
            grant = self._final_answer(cast("str | None", pushed))
            if grant is not None:
                return grant
        return answer

    def _final_answer(self, pushed: str | None) -> Answer | None:
        """What came through the callback, which everybody can complete; None if it is not final."""
        me = (self.options.name, self._entry["owner_id"])
        try:
            answer: Any = json.loads(pushed or "")
            if (answer["lock_name"], answer["owner_id"]) != me:
                return None
            if answer.get("reason") == _SUPERSEDED:
                return Answer(
                    fencing_token=None, reason=_SUPERSEDED, is_repeat=False, newest=answer["newest"]
                )
            if answer["acquired"] is True:
                return Answer(fencing_token=int(answer["fencing_token"]))
        except (ValueError, TypeError, KeyError):
            pass
        return None

    def _ask(self, callback_id: str | None = None) -> Answer:
        request: Json = {
            **self.options.request,
            "owner_id": self._entry["owner_id"],
            "execution_arn": self._execution_arn,
            "queue": self.options.max_wait is not None,
        }
        if callback_id is not None:
            request |= {"task_token": callback_id, "fallback_seconds": self.options.fallback}
        self._asked += 1
        is_first = self._asked == 1
        # With skip, `acquire` leaves only after a repeat: a call that a death interrupted counts.
        config = REPEATS_COUNTED if self.options.max_wait is None else REPEATED
        answer: Answer = self.context.step(
            self._asking(request, is_first=is_first),
            name=_operation(self.options.name, f"acquire {self._asked}"),
            config=config,
        )
        if "failure" in answer:
            raise error_named(**answer["failure"])
        self._holders = answer.get("holders") or self._holders
        self._detail = answer.get("detail", "")
        return answer

    def _asking(self, request: Json, *, is_first: bool) -> Callable[[StepContext], Answer]:
        """The step that asks for the lock. After the deadline only the first call still asks."""

        def step(context: StepContext) -> Answer:
            is_repeat = context.attempt > 1
            if time.time() >= self._deadline and (is_repeat or not is_first):
                return Answer(
                    fencing_token=None, reason="TOO_LATE", is_repeat=True, left_seconds=0.0
                )
            try:
                answer = self.options.service.acquire(request)
            except (InvalidRequest, LockStoreMisconfigured) as error:
                return Answer(failure=_recorded(error))
            if answer["acquired"]:
                return Answer(fencing_token=answer["fencing_token"])
            return Answer(
                fencing_token=None,
                reason=answer["reason"],
                is_repeat=is_repeat,
                holders=[holder["owner_name"] for holder in answer["holders"]],
                detail=answer.get("detail", ""),
                newest=answer.get("newest", 0),
                left_seconds=self._deadline - time.time(),
            )

        return step

    def _leave(self, purpose: str, *, entered: bool) -> Answer | None:
        """Releases, or leaves the queue too if it may be there; None if that failed for good."""
        request: Json = {
            "lock_name": self.options.name,
            "owner_id": self._entry["owner_id"],
            "execution_arn": self._execution_arn,
        }
        if entered:
            request["queue"] = True

        def step(context: StepContext) -> Answer:
            try:
                answer = self.options.service.release(request)
            except InvalidRequest as error:  # Not a missing permission: a repeat may have it.
                return Answer(failure=_recorded(error))
            return Answer(released=answer["released"], is_repeat=context.attempt > 1)

        try:
            departure: Answer = self.context.step(
                step, name=_operation(self.options.name, purpose), config=REPEATS_COUNTED
            )
        except StepError as error:
            self._warn(str(error))
            return None
        if "failure" in departure:
            self._warn(str(error_named(**departure["failure"])))
            return None
        return departure

    @property
    def _execution_arn(self) -> str:
        return str(self.context.execution_context.durable_execution_arn)

    @property
    def _deadline(self) -> float:
        longest = _FOR_EVER if self.options.max_wait is None else self.options.max_wait
        return self._entry["entered_at"] + longest

    def _warn(self, reason: str) -> None:
        text = "lock %r: release failed, the end of the execution or its lease ends it: %s"
        self.context.logger.warning(text, self.options.name, reason)

    def _superseded(self, newest: int) -> Superseded:
        name, version = self.options.name, self.options.request["only_newest"]
        if version is True:
            text = f"lock {name!r}: superseded, a later caller was granted the lock"
            return Superseded(text, lock_name=name, newest=newest)
        return Superseded(lock_name=name, version=version, newest=newest)

    def _too_late(self) -> LockWaitTimeout:
        waited = float(self.options.max_wait or 0)
        names = ", ".join(self._holders) or "no known owner"
        detail = f"; {self._detail}" if self._detail else ""
        return LockWaitTimeout(
            f"lock {self.options.name!r} was not handed over within {waited:g} s; held by {names}"
            f"{detail}",
            lock_name=self.options.name,
            waited_seconds=waited,
        )


def _recorded(error: Exception) -> Failure:
    return Failure(kind=type(error).__name__, message=text_of(error))


def _enter(_: object) -> _Entry:
    return _Entry(owner_id=str(uuid.uuid4()), entered_at=time.time())


def _is_waiting(answer: Answer) -> bool:
    return answer["fencing_token"] is None and answer["reason"] in _WAITING
