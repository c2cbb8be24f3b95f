"""`fairlock show`: who holds a lock and who waits, without their proofs of ownership."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from fairlock import LockClient
from fairlock.cli import main
from fairlock.cli.lines import details
from testbed.localaws import LocalAws
from tests.support import LOCK, FakeClock, acquire
from tests.support.bad_inputs import VALID_EXECUTION
from tests.support.operations import Operations
from tests.unit.cli.fleet import SECONDS, TABLE, Fleet, until
from tests.unit.cli.support import client_of
from tests.unit.client.support.doubles import Table


@pytest.fixture
def show(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    for name, value in {**aws.environment, "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)

    def shown(lock_name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["fairlock", "show", lock_name, "--table", TABLE])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return shown


def test_holders_and_waiters_are_shown_and_owner_ids_are_not(
    show: Callable[[str], str], locks: LockClient, fleet: Fleet
) -> None:
    def wait() -> None:
        locks.acquire("shown", owner_name="berta", max_wait=SECONDS).release()

    waiter = threading.Thread(target=wait)
    with locks.hold("shown", owner_name="[bold]anna[/bold]", data={"job": 7}) as lock:
        waiter.start()
        until(lambda: fleet.waiters("shown") == 1)
        lines = show("shown").splitlines()
    waiter.join(SECONDS)
    assert not waiter.is_alive()
    assert [line for line in lines if "since" not in line and "lease ends" not in line] == [
        "shown: held by 1 of 1, 1 waiting",
        "holder",
        "  owner: [bold]anna[/bold]",
        f"  fencing token: {lock.fencing_token}",
        '  data: {"job":7}',
        "waiter 1 of 1",
        "  owner: berta",
        "  limit: 1",
    ]
    assert lock.owner_id not in "".join(lines)
    assert show("shown") == "shown: free, 0 waiting\n"


def test_the_end_of_a_workflows_lease_is_explained_and_that_of_a_process_is_not(
    store: Operations, table: Table, clock: FakeClock
) -> None:
    """A workflow that runs does not renew: to read "over" as "dead" would be wrong."""
    store.acquire(acquire("workflow", limit=2, execution_arn=VALID_EXECUTION))
    store.acquire(acquire("process", limit=2))
    with client_of(table, clock) as locks:
        early = locks.describe(LOCK)
        clock.advance(3600)
        late = locks.describe(LOCK)
    assert early is not None
    assert late is not None
    assert "over" not in "".join(details(early))
    over = {line.partition("Z ")[2] for line in details(late) if "lease ends" in line}
    assert over == {
        "(over)",
        "(over: the next caller extends it if this execution runs, or else takes the lock)",
    }


def test_readers_are_shown_as_readers(show: Callable[[str], str], locks: LockClient) -> None:
    with locks.hold("shown shared", shared=True):
        lines = show("shown shared").splitlines()
    assert lines[0] == "shown shared: held by 1 reader of 20, 0 waiting"
    assert "  shared: yes" in lines
