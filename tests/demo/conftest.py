"""A whole story as fixtures: every check passes on it until a test bends a fact.

They are frozen, so one of each serves the whole session.
"""

from dataclasses import replace

import pytest

from examples.demo.facts import Incident, Mode, Role, Run, Story
from examples.demo.lanes import picture
from tests.demo.builders import (
    LIMITS,
    OPENING,
    account_after,
    guarded_execution,
    queued,
    turn_taking,
    unguarded_execution,
)


@pytest.fixture(scope="session")
def polling_run() -> Run:
    """Three executions on each of two accounts, taking turns, half a second between them."""
    turns = {account_id: turn_taking(account_id) for account_id in ("alice", "bob")}
    return Run(
        title="Guard that polls",
        mode=Mode.POLLING,
        executions=tuple(e for of_account in turns.values() for e in of_account),
        accounts=tuple(account_after(a, of_account[-1]) for a, of_account in turns.items()),
    )


@pytest.fixture(scope="session")
def queue_run(polling_run: Run) -> Run:
    """The same in the queue: each asked once, 20 ms after the one before; 40 ms between."""
    turns = {
        account_id: [
            queued(execution)
            for execution in turn_taking(account_id, between_ms=40, asked_apart_ms=20)
        ]
        for account_id in ("alice", "bob")
    }
    return Run(
        title="Guard with a queue",
        mode=Mode.QUEUE,
        executions=tuple(e for of_account in turns.values() for e in of_account),
        accounts=polling_run.accounts,
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
        mode=Mode.BARE,
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
        following=queued(
            guarded_execution(
                "dave-2",
                "dave",
                token=1_700_000_000_000_002,
                asked_ms=200,
                granted_ms=1_150,
                released_ms=2_150,
            )
        ),
    )


@pytest.fixture(scope="session")
def stopped() -> Incident:
    """An execution stopped 900 ms after its grant; its lease would have run out at 6,095 ms."""
    whole = guarded_execution("erin-1", "erin")
    acquired, charge, _ = whole.calls
    calls = (acquired, replace(charge, answer=None, answered_at_ms=None))
    return Incident(
        title="stopped execution",
        broken=replace(whole, status="ABORTED", ended_at_ms=1_000, calls=calls),
        following=queued(
            guarded_execution(
                "erin-2",
                "erin",
                token=1_700_000_000_000_002,
                asked_ms=500,
                granted_ms=1_600,
                released_ms=2_600,
            )
        ),
    )


@pytest.fixture(scope="session")
def story(
    unguarded_run: Run, polling_run: Run, queue_run: Run, failed: Incident, stopped: Incident
) -> Story:
    return Story(
        unguarded=unguarded_run,
        polling=polling_run,
        queue=queue_run,
        failed=failed,
        stopped=stopped,
        limits=LIMITS,
    )


@pytest.fixture(scope="session")
def drawn(story: Story) -> tuple[str, bytes]:
    """The story's picture as (SVG, PNG)."""
    from examples.demo.draw import draw  # noqa: PLC0415 - matplotlib: two seconds to import

    return draw(picture(story))
