"""Recorded facts as they should be, in which tests bend single ones: executions, runs, a story.

Every check passes on the story. All of it is frozen.
"""

from dataclasses import replace
from typing import Any

from examples.demo.facts import (
    Account,
    Call,
    Execution,
    Incident,
    Limits,
    Mode,
    Role,
    Run,
    Story,
)

LIMITS = Limits(lease_seconds=6, clock_tolerance_seconds=2, fallback_seconds=10)
OPENING = 1000


def guarded_execution(
    name: str = "alice-1",
    account_id: str = "alice",
    *,
    token: int = 1_700_000_000_000_001,
    asked_ms: int = 0,
    granted_ms: int = 100,
    released_ms: int | None = None,
    seen: str = "opening",
    read: int = OPENING,
    amount: int = 10,
) -> Execution:
    """It asks until it is granted the lock, and asks for its release a second later."""
    if released_ms is None:
        released_ms = granted_ms + 1_000
    held = {"acquired": False, "reason": "HELD", "retry_after_seconds": 1}
    grant = {"acquired": True, "fencing_token": token, "acquired_at_ms": granted_ms - 5}
    worked_ms = (granted_ms + 20, released_ms - 20)
    charge = charge_answer(name, token, worked_ms, seen=seen, read=read, amount=amount)
    refused = [
        call(Role.ACQUIRE, at_ms, at_ms + 10, held)
        for at_ms in range(asked_ms, granted_ms - 1_000, 1_010)
    ]
    return Execution(
        name=name,
        account_id=account_id,
        status="SUCCEEDED",
        error=None,
        started_at_ms=asked_ms,
        ended_at_ms=released_ms + 12,
        calls=(
            *refused,
            call(Role.ACQUIRE, granted_ms - 10, granted_ms, grant),
            call(Role.CHARGE, granted_ms + 1, released_ms - 1, charge),
            call(Role.RELEASE, released_ms, released_ms + 10, {"released": True}),
        ),
        transitions=5 + 2 * len(refused),
    )


def unguarded_execution(name: str, worked_ms: tuple[int, int], *, amount: int) -> Execution:
    """One on the first account that has read the opening balance."""
    start_ms, end_ms = worked_ms
    answer = charge_answer(name, None, worked_ms, seen="opening", read=OPENING, amount=amount)
    return Execution(
        name=name,
        account_id="alice",
        status="SUCCEEDED",
        error=None,
        started_at_ms=start_ms - 50,
        ended_at_ms=end_ms + 20,
        calls=(call(Role.CHARGE, start_ms - 40, end_ms + 10, answer),),
        transitions=1,
    )


def call(role: Role, asked_at_ms: int, answered_at_ms: int, answer: dict[str, Any]) -> Call:
    return Call(role=role, asked_at_ms=asked_at_ms, answered_at_ms=answered_at_ms, answer=answer)


def charge_answer(
    name: str,
    token: int | None,
    worked_ms: tuple[int, int],
    *,
    seen: str,
    read: int,
    amount: int,
) -> dict[str, object]:
    return {
        "charge_id": name,
        "account_id": "unused",
        "amount": amount,
        "fencing_token": token,
        "balance_read": read,
        "change_read": seen,
        "balance_written": read - amount,
        "started_at_ms": worked_ms[0],
        "read_at_ms": worked_ms[0],
        "written_at_ms": worked_ms[1],
    }


def account_after(account_id: str, last: Execution) -> Account:
    assert last.charge is not None
    closing = last.charge.balance_written
    return Account(account_id=account_id, opening=OPENING, closing=closing, last_change=last.name)


def asking(execution: Execution, *acquires: Call, transitions: int) -> Execution:
    """The same as if it had asked for the lock by these calls."""
    others = tuple(call for call in execution.calls if call.role is not Role.ACQUIRE)
    return replace(execution, calls=(*acquires, *others), transitions=transitions)


def queued(execution: Execution) -> Execution:
    """The same as if it had waited in the queue: it asked once and got its answer late."""
    answered = execution.calls_of(Role.ACQUIRE)[-1]
    granted = replace(answered, asked_at_ms=execution.started_at_ms)
    return asking(execution, granted, transitions=4)


def timed_out(execution: Execution, *asked_ms: int) -> Execution:
    """The same as if it had asked in vain at these times, each time for a fallback period."""
    slept = [
        Call(role=Role.ACQUIRE, asked_at_ms=at, answered_at_ms=at + 10_000, error="States.Timeout")
        for at in asked_ms
    ]
    granted = execution.calls_of(Role.ACQUIRE)[-1]
    return asking(execution, *slept, granted, transitions=execution.transitions + len(slept))


def turn_taking(
    account_id: str = "alice", count: int = 3, *, between_ms: int = 500, asked_apart_ms: int = 0
) -> list[Execution]:
    turns: list[Execution] = []
    for number in range(count):
        before = turns[-1].charge if turns else None
        granted_ms = 100 + number * (1_000 + between_ms)
        turns.append(
            guarded_execution(
                f"{account_id}-{number + 1}",
                account_id,
                token=1_700_000_000_000_000 + number,
                asked_ms=number * asked_apart_ms,
                granted_ms=granted_ms,
                seen=before.charge_id if before else "opening",
                read=before.balance_written if before else OPENING,
                amount=10 * (number + 1),
            )
        )
    return turns


def _run(title: str, mode: Mode, turns: dict[str, list[Execution]]) -> Run:
    return Run(
        title=title,
        mode=mode,
        executions=tuple(each for of_account in turns.values() for each in of_account),
        accounts=tuple(account_after(name, each[-1]) for name, each in turns.items()),
    )


def _next(name: str, account_id: str, *, asked_ms: int, granted_ms: int) -> Execution:
    token = 1_700_000_000_000_002
    execution = guarded_execution(
        name, account_id, token=token, asked_ms=asked_ms, granted_ms=granted_ms
    )
    return queued(execution)


EMPTY = Run(title="Empty", mode=Mode.QUEUE, executions=(), accounts=())
POLLING = _run(
    "Guard that polls", Mode.POLLING, {name: turn_taking(name) for name in ("alice", "bob")}
)
"""Three executions on each of two accounts, taking turns, half a second between them."""
QUEUE = _run(
    "Guard with a queue",
    Mode.QUEUE,
    {
        name: [queued(each) for each in turn_taking(name, between_ms=40, asked_apart_ms=20)]
        for name in ("alice", "bob")
    },
)
"""The same in the queue: each asked once, 20 ms after the one before; 40 ms between."""
UNGUARDED = _run(
    "Without the guard",
    Mode.BARE,
    {
        "alice": [
            unguarded_execution("a-1", (100, 900), amount=10),
            unguarded_execution("a-2", (300, 1_100), amount=20),
        ]
    },
)
"""Two executions that read the same balance: the first one's update is lost."""
_DAVE, _ERIN = (guarded_execution(f"{name}-1", name) for name in ("dave", "erin"))
FAILED = Incident(
    title="failed task",
    broken=replace(
        _DAVE,
        status="FAILED",
        error="CardDeclined",
        calls=tuple(
            replace(call, answer=None, error="CardDeclined") if call.role is Role.CHARGE else call
            for call in _DAVE.calls
        ),
    ),
    following=_next("dave-2", "dave", asked_ms=200, granted_ms=1_150),
)
"""A task that raised CardDeclined, and the execution that had waited for the lock."""
STOPPED = Incident(
    title="stopped execution",
    broken=replace(
        _ERIN,
        status="ABORTED",
        ended_at_ms=1_000,
        calls=(_ERIN.calls[0], replace(_ERIN.calls[1], answer=None, answered_at_ms=None)),
    ),
    following=_next("erin-2", "erin", asked_ms=500, granted_ms=1_600),
)
"""An execution stopped 900 ms after its grant; its lease would have run out at 6,095 ms."""
STORY = Story(
    unguarded=UNGUARDED,
    polling=POLLING,
    queue=QUEUE,
    failed=FAILED,
    stopped=STOPPED,
    limits=LIMITS,
)
