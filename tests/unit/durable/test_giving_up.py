"""A waiter gives up, and is handed the lock in that very moment: it gives it back."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

import pytest
from aws_durable_execution_sdk_python import DurableContext

from fairlock.durable import hold
from fairlock.errors import LockWaitTimeout
from tests.support import acquire, release
from tests.unit.durable.runner import LOCK, QUICK, Body, executions_of
from tests.unit.durable.service import Json, Service

MOMENTS: Final = ("the push is lost", "before it leaves the queue", "after it has left the queue")
TIMES: Final = int(os.environ.get("FAIRLOCK_DURABLE_TIMES", "5"))


@dataclass
class LateGrant:
    """A lock whose holder releases in one of the moments.

    Attributes:
        granted: how often the waiter was handed the lock.
    """

    moment: str
    service: Service = field(default_factory=Service)
    granted: int = 0
    _is_free: bool = False

    def __post_init__(self) -> None:
        self.service.before = self._before
        self.service.after = self._after

    def _before(self, name: str, request: Json) -> None:
        if name == "release" and self.moment == MOMENTS[1] and "queue" in request:
            self._free(request["owner_id"])

    def _after(self, name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and self.moment == MOMENTS[0] and "task_token" in request:
            self.service.push = None
            self._free(request["owner_id"])
        if name == "release" and self.moment == MOMENTS[2]:
            self._free(request["owner_id"])

    def _free(self, waiter: str) -> None:
        if self._is_free:
            return
        self._is_free = True
        self.service.store().release(release("anna", lock_name=LOCK))
        self.granted += self.service.state(LOCK).holder(waiter) is not None


def body_with(service: Service) -> Body:
    def body(_event: object, context: DurableContext) -> str:
        try:
            with hold(context, LOCK, service=service, max_wait=1):
                return "held"
        except LockWaitTimeout:
            return "gave up"

    return body


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_grant_in_the_moment_of_giving_up_is_given_back(moment: str) -> None:
    granted = 0
    for _ in range(TIMES):
        late = LateGrant(moment)
        late.service.store().acquire(acquire("anna", lock_name=LOCK))
        with executions_of(body_with(late.service), late.service, time_scale=QUICK) as executions:
            assert executions.run("a").result == '"gave up"'
        assert late.service.state(LOCK).held == 0
        assert late.service.table.waiters(LOCK) == []
        granted += late.granted
    assert granted == (0 if moment == MOMENTS[2] else TIMES)
