"""`leasehold show`: who holds a lock and who waits, without their proofs of ownership."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from leasehold import LockClient
from leasehold.cli import main
from localaws import LocalAws
from tests.unit.cli.fleet import SECONDS, TABLE, Fleet, until


@pytest.fixture
def show(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    for name, value in {**aws.environment, "COLUMNS": "40"}.items():
        monkeypatch.setenv(name, value)

    def shown(lock_name: str) -> str:
        monkeypatch.setattr(sys, "argv", ["leasehold", "show", lock_name, "--table", TABLE])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    return shown


def test_holders_and_waiters_are_shown_and_owner_ids_are_not(
    show: Callable[[str], str], locks: LockClient, fleet: Fleet
) -> None:
    def wait() -> None:
        locks.acquire("shown", owner_name="berta", wait=SECONDS).release()

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
