"""A whole story as fixtures: every check passes on it until a test bends a fact.

They are frozen, so one of each serves the whole session.
"""

from dataclasses import replace

import pytest

from examples.demo.draw import draw
from examples.demo.facts import Incident, Role, Run, Story
from examples.demo.lanes import picture
from tests.demo.builders import (
    LEASE_SECONDS,
    OPENING,
    TOLERANCE_SECONDS,
    account_after,
    guarded_execution,
    turn_taking,
    unguarded_execution,
)


@pytest.fixture(scope="session")
def guarded_run() -> Run:
    """Three executions on each of two accounts, taking turns, nothing lost."""
    turns = {account_id: turn_taking(account_id) for account_id in ("alice", "bob")}
    return Run(
        title="With the guard",
        guarded=True,
        executions=tuple(e for of_account in turns.values() for e in of_account),
        accounts=tuple(account_after(a, of_account[-1]) for a, of_account in turns.items()),
    )


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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
            asked_ms=500,
            granted_ms=8_300,
            released_ms=9_300,
        ),
    )


@pytest.fixture(scope="session")
def story(unguarded_run: Run, guarded_run: Run, failed: Incident, stopped: Incident) -> Story:
    return Story(
        unguarded=unguarded_run,
        guarded=(guarded_run,),
        failed=failed,
        stopped=stopped,
        lease_seconds=LEASE_SECONDS,
        clock_tolerance_seconds=TOLERANCE_SECONDS,
    )


@pytest.fixture(scope="session")
def drawn(story: Story) -> tuple[str, bytes]:
    """The story's picture as (SVG, PNG)."""
    return draw(picture(story))
