"""Builders of recorded facts: a run as it should be, in which single facts can be bent."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from examples.demo.facts import Account, Call, Execution, Incident, Role, Run, Story

LEASE_SECONDS, TOLERANCE_SECONDS = 6, 2
OPENING = 1000


def guarded_execution(
    name: str = "alice-1",
    account_id: str = "alice",
    *,
    token: int = 1_700_000_000_000_001,
    asked_ms: int = 0,
    granted_ms: int = 100,
    released_ms: int = 1_100,
    seen: str = "opening",
    read: int = OPENING,
    amount: int = 10,
) -> Execution:
    refused = [
        Call(
            role=Role.ACQUIRE,
            asked_at_ms=at_ms,
            answered_at_ms=at_ms + 10,
            answer={"acquired": False, "reason": "HELD", "retry_after_seconds": 1},
        )
        for at_ms in range(asked_ms, granted_ms - 1_000, 1_010)
    ]
    granted = Call(
        role=Role.ACQUIRE,
        asked_at_ms=granted_ms - 10,
        answered_at_ms=granted_ms,
        answer={
            "acquired": True,
            "fencing_token": token,
            "acquired_at_ms": granted_ms - 5,
            "expires_at_ms": granted_ms - 5 + LEASE_SECONDS * 1000,
        },
    )
    charge = Call(
        role=Role.CHARGE,
        asked_at_ms=granted_ms + 1,
        answered_at_ms=released_ms - 1,
        answer=charge_answer(
            name, token, (granted_ms + 20, released_ms - 20), seen=seen, read=read, amount=amount
        ),
    )
    release = Call(
        role=Role.RELEASE,
        asked_at_ms=released_ms,
        answered_at_ms=released_ms + 10,
        answer={"released": True},
    )
    return Execution(
        name=name,
        account_id=account_id,
        status="SUCCEEDED",
        error=None,
        started_at_ms=asked_ms,
        ended_at_ms=released_ms + 12,
        calls=(*refused, granted, charge, release),
        transitions=5 + 2 * len(refused),
    )


def unguarded_execution(
    name: str, account_id: str, worked_ms: tuple[int, int], *, seen: str, read: int, amount: int
) -> Execution:
    answer = charge_answer(name, None, worked_ms, seen=seen, read=read, amount=amount)
    start_ms, end_ms = worked_ms
    return Execution(
        name=name,
        account_id=account_id,
        status="SUCCEEDED",
        error=None,
        started_at_ms=start_ms - 50,
        ended_at_ms=end_ms + 20,
        calls=(
            Call(
                role=Role.CHARGE,
                asked_at_ms=start_ms - 40,
                answered_at_ms=end_ms + 10,
                answer=answer,
            ),
        ),
        transitions=1,
    )


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
    return Account(
        account_id=account_id,
        opening=OPENING,
        closing=last.charge.balance_written,
        last_change=last.name,
    )


def turn_taking(account_id: str = "alice", count: int = 3) -> list[Execution]:
    turns: list[Execution] = []
    for number in range(count):
        before = turns[-1].charge if turns else None
        turns.append(
            guarded_execution(
                f"{account_id}-{number + 1}",
                account_id,
                token=1_700_000_000_000_000 + number,
                granted_ms=100 + number * 1_500,
                released_ms=1_100 + number * 1_500,
                seen=before.charge_id if before else "opening",
                read=before.balance_written if before else OPENING,
                amount=10 * (number + 1),
            )
        )
    return turns


@pytest.fixture
def guarded_run() -> Run:
    """Three executions on each of two accounts, taking turns, nothing lost."""
    turns = {account_id: turn_taking(account_id) for account_id in ("alice", "bob")}
    return Run(
        title="With the guard",
        guarded=True,
        executions=tuple(e for of_account in turns.values() for e in of_account),
        accounts=tuple(account_after(a, of_account[-1]) for a, of_account in turns.items()),
    )


@pytest.fixture
def unguarded_run() -> Run:
    """Two executions that read the same balance: the first one's update is lost."""
    first = unguarded_execution("a-1", "alice", (100, 900), seen="opening", read=OPENING, amount=10)
    second = unguarded_execution(
        "a-2", "alice", (300, 1_100), seen="opening", read=OPENING, amount=20
    )
    return Run(
        title="Without the guard",
        guarded=False,
        executions=(first, second),
        accounts=(account_after("alice", second),),
    )


@pytest.fixture
def failed() -> Incident:
    """A task that raised CardDeclined, and the execution that had waited for the lock."""
    broken = guarded_execution("dave-1", "dave")
    calls = [
        replace(call, answer=None, error="CardDeclined") if call.role is Role.CHARGE else call
        for call in broken.calls
    ]
    return Incident(
        title="failed task",
        broken=replace(broken, status="FAILED", error="CardDeclined", calls=tuple(calls)),
        following=guarded_execution(
            "dave-2",
            "dave",
            token=1_700_000_000_000_002,
            asked_ms=200,
            granted_ms=1_900,
            released_ms=2_900,
        ),
    )


@pytest.fixture
def stopped() -> Incident:
    """An execution stopped 900 ms after its grant; its lease runs out at 6,095 + 2,000 ms."""
    whole = guarded_execution("erin-1", "erin")
    acquired, charge, _ = whole.calls
    calls = (acquired, replace(charge, answer=None, answered_at_ms=None))
    return Incident(
        title="stopped execution",
        broken=replace(whole, status="ABORTED", ended_at_ms=1_000, calls=calls),
        following=guarded_execution(
            "erin-2",
            "erin",
            token=1_700_000_000_000_002,
            asked_ms=1_050,
            granted_ms=8_300,
            released_ms=9_300,
        ),
    )


@pytest.fixture
def story(unguarded_run: Run, guarded_run: Run, failed: Incident, stopped: Incident) -> Story:
    return Story(
        unguarded=unguarded_run,
        guarded=(guarded_run,),
        failed=failed,
        stopped=stopped,
        lease_seconds=LEASE_SECONDS,
        clock_tolerance_seconds=TOLERANCE_SECONDS,
    )


@pytest.fixture
def execution() -> Callable[..., Execution]:
    """Builds one guarded execution."""
    return guarded_execution
