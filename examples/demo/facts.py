"""What happened in a demo run: plain records, made from histories and task outputs.

All times are epoch milliseconds. Nothing here is computed from what should have happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """What a called function is to the demo."""

    ACQUIRE = "acquire"
    RELEASE = "release"
    CHARGE = "charge"


class Mode(StrEnum):
    """How the executions of a run came to their task."""

    BARE = "bare"
    POLLING = "polling"
    QUEUE = "queue"


@dataclass(frozen=True, kw_only=True, order=True)
class Interval:
    """From `start_ms` up to, not including, `end_ms`."""

    start_ms: int
    end_ms: int

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end_ms - self.start_ms) / 1000

    def __str__(self) -> str:
        """Its length as people say it."""
        ms = self.end_ms - self.start_ms
        return f"{ms} ms" if ms < 1000 else f"{self.seconds:.1f} s"  # noqa: PLR2004 one second


@dataclass(frozen=True, kw_only=True)
class Call:
    """One function call of an execution; `answered_at_ms` is None if no answer was recorded."""

    role: Role | None
    asked_at_ms: int
    answered_at_ms: int | None = None
    answer: Mapping[str, Any] | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The acquire answer that let an execution in."""

    fencing_token: int
    acquired_at_ms: int
    answered_at_ms: int


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What the task says it did."""

    charge_id: str
    amount: int
    fencing_token: int | None
    balance_read: int
    change_read: str
    balance_written: int
    read_at_ms: int
    written_at_ms: int


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One workflow execution, as its history tells it."""

    name: str
    account_id: str
    status: str
    error: str | None
    started_at_ms: int
    ended_at_ms: int
    calls: tuple[Call, ...]
    transitions: int

    def calls_of(self, role: Role) -> tuple[Call, ...]:
        """Its calls of one function, in order."""
        return tuple(call for call in self.calls if call.role == role)

    @property
    def grant(self) -> Grant | None:
        """The first acquire that was answered with a grant."""
        for call in self.calls_of(Role.ACQUIRE):
            if call.answer and call.answer["acquired"] and call.answered_at_ms is not None:
                return Grant(
                    fencing_token=call.answer["fencing_token"],
                    acquired_at_ms=call.answer["acquired_at_ms"],
                    answered_at_ms=call.answered_at_ms,
                )
        return None

    @property
    def refusals(self) -> tuple[Call, ...]:
        """The acquire calls that were answered "taken", oldest first."""
        return tuple(
            call
            for call in self.calls_of(Role.ACQUIRE)
            if call.answer and not call.answer["acquired"]
        )

    @property
    def charge(self) -> Charge | None:
        """The task's own account of its work, if it returned one."""
        for call in self.calls_of(Role.CHARGE):
            if call.answer:
                fields = Charge.__dataclass_fields__
                return Charge(**{k: v for k, v in call.answer.items() if k in fields})
        return None

    @property
    def released_at_ms(self) -> int | None:
        """When the answer `released: true` had arrived."""
        for call in self.calls_of(Role.RELEASE):
            if call.answer and call.answer["released"]:
                return call.answered_at_ms
        return None

    @property
    def waited(self) -> Interval | None:
        """From the first question for the lock to the grant, or to the end without one."""
        asked = self.calls_of(Role.ACQUIRE)
        if not asked:
            return None
        end_ms = self.grant.answered_at_ms if self.grant else self.ended_at_ms
        return Interval(start_ms=asked[0].asked_at_ms, end_ms=end_ms)

    @property
    def held(self) -> Interval | None:
        """From the grant's arrival to the question for release (or the end of the execution).

        Inside this interval the execution itself believes that it holds the lock, and both ends are
        on the safe side of the table's truth: the lock was really granted before and really given
        back after. So two such intervals of one lock may never overlap, not by a millisecond.
        """
        if self.grant is None:
            return None
        asked = self.calls_of(Role.RELEASE)
        end_ms = asked[0].asked_at_ms if asked else self.ended_at_ms
        return Interval(start_ms=self.grant.answered_at_ms, end_ms=end_ms)

    @property
    def worked(self) -> Interval | None:
        """From the read to the write, by the task's own clock; None if it never wrote."""
        done = self.charge
        return Interval(start_ms=done.read_at_ms, end_ms=done.written_at_ms) if done else None


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account row before and after a run."""

    account_id: str
    opening: int
    closing: int
    last_change: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """Executions that contended for the same accounts, with or without the guard."""

    title: str
    mode: Mode
    executions: tuple[Execution, ...]
    accounts: tuple[Account, ...]

    @property
    def guarded(self) -> bool:
        """Whether its tasks ran inside a guard."""
        return self.mode is not Mode.BARE

    @property
    def lasted(self) -> Interval:
        """From the first start to the last end."""
        return Interval(
            start_ms=min((e.started_at_ms for e in self.executions), default=0),
            end_ms=max((e.ended_at_ms for e in self.executions), default=0),
        )

    def on(self, account_id: str) -> tuple[Execution, ...]:
        """The executions that charged one account."""
        return tuple(e for e in self.executions if e.account_id == account_id)


@dataclass(frozen=True, kw_only=True)
class Incident:
    """An execution that went wrong while it held a lock, and the one that wanted the lock next."""

    title: str
    broken: Execution
    following: Execution


@dataclass(frozen=True, kw_only=True)
class Limits:
    """For how long an execution that is gone keeps its lock from the next, if no one reaps it."""

    lease_seconds: int
    clock_tolerance_seconds: int
    fallback_seconds: int
    """How often a waiter in the queue asks again by itself."""

    @property
    def lapse_ms(self) -> int:
        """From a grant to the moment from which others may take its place."""
        return (self.lease_seconds + self.clock_tolerance_seconds) * 1000


@dataclass(frozen=True, kw_only=True)
class Story:
    """Everything a demo run recorded."""

    unguarded: Run
    polling: Run
    queue: Run
    failed: Incident
    stopped: Incident
    limits: Limits

    @property
    def runs(self) -> tuple[Run, Run, Run]:
        """The same work, three times."""
        return self.unguarded, self.polling, self.queue
