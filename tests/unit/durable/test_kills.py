"""A function is killed at each of its checkpoints, and the lock is right in every moment.

Lambda starts the function again, which replays. Each scene is run once to count its checkpoints,
and then once for each of them and for both moments: before the checkpoint is written, and after."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import DurableLock, durable_lock, hold
from fairlock.errors import LockStoreUnavailable, LockWaitTimeout
from tests.support import owner
from tests.unit.durable.service import (
    LOCK,
    QUICK,
    Executions,
    Json,
    Killer,
    Service,
    executions_of,
    holding,
)


@dataclass
class Scene:
    """What happens around one execution, and what was wrong with it.

    Attributes:
        frees: the moment at which the other owner releases; None: there is none.
        fails: whether the work raises.
        max_wait: of the execution.
        granted: whether it was handed the lock.
    """

    frees: str | None = None
    fails: bool = False
    max_wait: int = 3000
    service: Service = field(default_factory=Service)
    faults: list[str] = field(default_factory=list)
    tokens: set[int] = field(default_factory=set)
    granted: bool = False

    def body(self, _event: object, context: DurableContext) -> str:
        try:
            with hold(context, LOCK, service=self.service, max_wait=self.max_wait) as lock:
                context.step(lambda _: self.work(lock), name="work")
                context.wait(Duration.from_seconds(1), name="sleep inside")
                context.step(lambda _: self.work(lock), name="more work")
                if self.fails:
                    message = "the work failed"
                    raise ValueError(message)
        except LockWaitTimeout:
            return "too late"
        context.step(lambda _: None, name="after")
        return "done"

    def work(self, lock: DurableLock) -> None:
        """Notes whether the lock is held by this very grant."""
        self.tokens.add(lock.fencing_token)
        held = [holder.fencing_token for holder in self.service.state(LOCK).holders]
        if held != [lock.fencing_token]:
            self.faults.append(f"works with {lock.fencing_token}, held are {held}")

    def run(self, killer: Killer) -> Executions:
        if self.frees is not None:
            self.service.take("anna")
            self.service.before, self.service.after = self.before, self.after
        with executions_of(self.body, self.service, killer, time_scale=QUICK) as executions:
            result = executions.run("a")
        expected = '"too late"' if self.frees in (NEVER, *MOMENTS) else '"done"'
        if result.result != (None if self.fails else expected):
            self.faults.append(f"{result.status} with {result.result}, {result.error}")
        self.check_nothing_left()
        return executions

    def before(self, name: str, request: Json) -> None:
        if name == "release" and "queue" in request:
            self.free_at(MOMENTS[1], request)

    def after(self, name: str, request: Json, _answer: Json) -> None:
        if name == "release":
            self.free_at(MOMENTS[2], request)
            return
        self.free_at(f"after acquire {self.service.called().count('acquire')}", request)
        if "task_token" in request and self.frees == MOMENTS[0]:
            self.service.push = None
            self.free_at(MOMENTS[0], request)

    def free_at(self, moment: str, request: Json) -> None:
        if moment == self.frees and self.service.state(LOCK).holder(owner("anna")) is not None:
            self.service.free("anna")
            self.granted = self.service.state(LOCK).holder(request["owner_id"]) is not None

    def check_nothing_left(self) -> None:
        others = {owner("anna")} if self.frees == NEVER else set()
        held = {holder.owner_id for holder in self.service.state(LOCK).holders}
        if held != others:
            self.faults.append(f"{len(held)} hold the lock at the end")
        if self.service.table.waiters(LOCK):
            self.faults.append("someone waits at the end")
        if len(self.tokens) > 1:
            self.faults.append(f"{len(self.tokens)} grants")


# A waiter gives up, and is handed the lock in that very moment: it gives it back.
MOMENTS: Final = ("the push is lost", "before it leaves the queue", "after it has left the queue")
TIMES: Final = int(os.environ.get("FAIRLOCK_DURABLE_TIMES", "5"))
NEVER: Final = "never"
SCENES: dict[str, Callable[[], Scene]] = {
    "free": Scene,
    "fails": lambda: Scene(fails=True),
    "handed over while it asks first": lambda: Scene(frees="after acquire 1"),
    "handed over while it asks again": lambda: Scene(frees="after acquire 2"),
    "gives up": lambda: Scene(frees=NEVER, max_wait=1),
}


def faults_of(make_scene: Callable[[], Scene]) -> dict[str, list[str]]:
    """What is wrong, by the checkpoint at which the function was killed."""
    undisturbed = make_scene()
    killer = Killer()
    undisturbed.run(killer)
    found = {"no one is killed": undisturbed.faults} if undisturbed.faults else {}
    for at, name in enumerate(killer.seen):
        for is_written in (False, True):
            scene = make_scene()
            scene.run(Killer(at=at, is_written=is_written))
            if scene.faults:
                found[f"killed {'after' if is_written else 'before'} {at}: {name}"] = scene.faults
    return found


@pytest.mark.parametrize("scene", SCENES)
def test_a_function_killed_at_any_checkpoint_holds_and_releases_exactly_once(scene: str) -> None:
    assert faults_of(SCENES[scene]) == {}


@pytest.mark.parametrize("is_counted", [True, False], ids=["protected", "control"])
def test_a_repeated_release_is_not_taken_for_a_loss(
    monkeypatch: pytest.MonkeyPatch, *, is_counted: bool
) -> None:
    """The reply to a release is lost, and another owner comes and goes before it is repeated."""
    if not is_counted:
        monkeypatch.setattr(durable_lock, "REPEATS_COUNTED", durable_lock.REPEATED)
        # The claim knows it too, unless the function died before it had marked that.
        monkeypatch.setattr("fairlock.store.release.gave_back_before", lambda _item: False)
    scene, killer = Scene(), Killer()
    Scene().run(killer)

    def pass_through(name: str, *_: object) -> None:
        if name == "release":
            scene.service.take("ben")
            scene.service.free("ben")

    scene.service.after = pass_through
    at = next(at for at, seen in enumerate(killer.seen) if "release SUCCEED" in seen)
    scene.run(Killer(at=at))
    assert ("LockLost" in "".join(scene.faults)) is not is_counted


def test_a_call_that_a_death_delayed_is_granted_nothing_after_the_lock_was_skipped() -> None:
    """It is still on its way when the function dies, and arrives at a free lock."""
    service, killer, late = Service(), Killer(), list[Json]()
    service.take("anna")

    def delay(name: str, request: Json) -> None:
        if name == "acquire" and not late:
            late.append(request)
            killer.at = len(killer.seen)
            raise LockStoreUnavailable

    service.before = delay
    body = holding(service, lambda _, lock: lock is not None, skip=True)
    with executions_of(body, service, killer, time_scale=QUICK) as executions:
        assert executions.run("a").result == "false"
        assert len(executions.invocations) > 1
    service.free("anna")
    service.acquire(late[0])
    assert service.called() == ["acquire", "release", "acquire"]
    assert service.state(LOCK).held == 0


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_grant_in_the_moment_of_giving_up_is_given_back(moment: str) -> None:
    granted = 0
    for _ in range(TIMES):
        scene = Scene(frees=moment, max_wait=1)
        scene.run(Killer())
        assert scene.faults == []
        granted += scene.granted
    assert granted == (0 if moment == MOMENTS[2] else TIMES)
