"""`only_newest` on many machines: the newest waiter gets the lock, and the others are told."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fairlock import LockClient, Superseded
from tests.unit.client.doubles import Table


class Fleet:
    """Deployments on machines of their own, in real threads over one table in memory."""

    def __init__(self, *, has_one_client: bool) -> None:
        self.table = Table()
        self.shared = self.client()
        self._has_one_client = has_one_client
        self.ran: list[int] = []
        self.superseded: list[Superseded] = []
        self._threads: list[threading.Thread] = []

    def client(self, **settings: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
        return LockClient("locks", client=self.table, longest_poll=0.05, **settings)

    def deploy(self, version: int) -> None:
        """Begins a deployment, and returns once it waits."""
        before = len(self.table.waiters("deploy"))
        thread = threading.Thread(target=self._deploy, args=(version,))
        thread.start()
        self._threads.append(thread)
        paused = threading.Event()
        for _ in range(1_000):
            if len(self.table.waiters("deploy")) > before:
                return
            paused.wait(0.01)
        pytest.fail("it does not wait")

    def _deploy(self, version: int) -> None:
        locks = self.shared if self._has_one_client else self.client()
        try:
            with locks.hold("deploy", only_newest=version, max_wait=60):
                self.ran.append(version)
        except Superseded as error:
            self.superseded.append(error)
        finally:
            if locks is not self.shared:
                locks.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        self.shared.close()


@pytest.mark.parametrize("has_one_client", [True, False], ids=["of one client", "of each its own"])
def test_of_many_waiting_deployments_only_the_newest_runs(*, has_one_client: bool) -> None:
    """In one client one of them reads, and the others learn it without a request."""
    fleet = Fleet(has_one_client=has_one_client)
    holder = fleet.shared.acquire("deploy", only_newest=1)
    for version in (4, 2, 9, 3):
        fleet.deploy(version)
    holder.release()
    fleet.join()
    assert fleet.ran == [9]
    assert sorted(error.version for error in fleet.superseded) == [2, 3, 4]
    assert {(error.lock_name, error.newest) for error in fleet.superseded} == {("deploy", 9)}
    assert str(fleet.superseded[0]).endswith("is superseded, 9 was granted the lock")
    assert fleet.table.waiters("deploy") == []
