"""A function is killed at each of its checkpoints, and the lock is right in every moment.

Lambda starts the function again, which replays. Each scene is run once to count its checkpoints,
and then once for each of them and for both moments: before the checkpoint is written, and after."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import DurableLock, durable_lock, hold
from fairlock.errors import LockWaitTimeout
from tests.support import acquire, owner, release
from tests.support import acquire as acquire_request
from tests.support import release as release_request
from tests.unit.durable.service import (
    LOCK,
    QUICK,
    Body,
    Executions,
    Json,
    Killer,
    Service,
    executions_of,
    unavailable,
)


@dataclass
class Scene:
    """What happens around one execution, and what was wrong with it.

    Attributes:
        frees_after: the other owner releases after this many calls of acquire; None: there is none.
        fails: whether the work raises.
        max_wait: of the execution.
    """

    frees_after: int | None = None
    fails: bool = False
    max_wait: int = 3000
    service: Service = field(default_factory=Service)
    faults: list[str] = field(default_factory=list)
    tokens: set[int] = field(default_factory=set)
    asked: int = 0

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
        if self.frees_after is not None:
            self.service.store().acquire(acquire_request("anna", lock_name=LOCK))
            self.service.after = self.free
        with executions_of(self.body, self.service, killer, time_scale=QUICK) as executions:
            result = executions.run("a")
        expected = '"too late"' if self.frees_after == NEVER else '"done"'
        if result.result != (None if self.fails else expected):
            self.faults.append(f"{result.status} with {result.result}, {result.error}")
        self.check_nothing_left()
        return executions

    def free(self, name: str, _request: Json, _answer: Json) -> None:
        self.asked += name == "acquire"
        if self.asked == self.frees_after:
            self.service.store().release(release_request("anna", lock_name=LOCK))

    def check_nothing_left(self) -> None:
        others = {owner("anna")} if self.frees_after == NEVER else set()
        held = {holder.owner_id for holder in self.service.state(LOCK).holders}
        if held != others:
            self.faults.append(f"{len(held)} hold the lock at the end")
        if self.service.table.waiters(LOCK):
            self.faults.append("someone waits at the end")
        if len(self.tokens) > 1:
            self.faults.append(f"{len(self.tokens)} grants")


NEVER = 1_000
SCENES: dict[str, Callable[[], Scene]] = {
    "free": Scene,
    "fails": lambda: Scene(fails=True),
    "handed over while it asks first": lambda: Scene(frees_after=1),
    "handed over while it asks again": lambda: Scene(frees_after=2),
    "gives up": lambda: Scene(frees_after=NEVER, max_wait=1),
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
def test_a_function_that_is_killed_at_any_checkpoint_holds_and_releases_exactly_once(
    scene: str,
) -> None:
    assert faults_of(SCENES[scene]) == {}


def test_control_a_release_on_suspension_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlock.durable.holding._is_end_of_block", lambda _error: True)
    scene = Scene()
    scene.run(Killer())
    assert scene.faults != []


def test_control_an_owner_id_made_outside_a_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    step = DurableContext.step

    def unrecorded(self: DurableContext, func: Any, name: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - the SDK's
        if name is not None and name.endswith("enter"):
            return func(None)
        return step(self, func, name=name, **more)

    monkeypatch.setattr(DurableContext, "step", unrecorded)
    assert faults_of(lambda: Scene(max_wait=200)) != {}


def pass_through(service: Service, name: str) -> None:
    """Another caller else holds the lock in between, and releases it."""
    if name == "release":
        service.store().acquire(acquire_request("ben", lock_name=LOCK))
        service.store().release(release_request("ben", lock_name=LOCK))


def released_twice() -> list[str]:
    """The reply to a release is lost, and another owner comes and goes before it is repeated."""
    scene = Scene()
    scene.service.after = lambda name, _request, _answer: pass_through(scene.service, name)
    killer = Killer()
    undisturbed = Scene()
    undisturbed.run(killer)
    at = next(at for at, seen in enumerate(killer.seen) if "release SUCCEED" in seen)
    scene.run(Killer(at=at))
    return scene.faults


def test_a_repeated_release_is_not_taken_for_a_loss() -> None:
    assert released_twice() == []


def test_control_a_release_that_does_not_count_its_repeats_reports_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_lock, "REPEATS_COUNTED", durable_lock.REPEATED)
    # The claim knows it too, unless the function died before it had marked that.
    monkeypatch.setattr("fairlock.store.release.gave_back_before", lambda _item: False)
    assert "LockLost" in released_twice()[0]


def skipped_after_a_death() -> Service:
    """The first call is still on its way when the function dies, and arrives at a free lock."""
    service, killer, late = Service(), Killer(), list[Json]()
    service.store().acquire(acquire_request("anna", lock_name=LOCK))

    def delay(name: str, request: Json) -> None:
        if name == "acquire" and not late:
            late.append(request)
            killer.at = len(killer.seen)
            unavailable()

    service.before = delay

    def body(_event: object, context: DurableContext) -> str:
        with hold(context, LOCK, service=service, skip=True) as lock:
            return "busy" if lock is None else "held"

    with executions_of(body, service, killer, time_scale=QUICK) as executions:
        assert executions.run("a").result == '"busy"'
        assert len(executions.invocations) > 1
    service.store().release(release_request("anna", lock_name=LOCK))
    service.acquire(late[0])
    return service


def test_a_call_that_a_death_delayed_is_granted_nothing_after_the_lock_was_skipped() -> None:
    service = skipped_after_a_death()
    assert [name for name, _ in service.calls] == ["acquire", "release", "acquire"]
    assert service.state(LOCK).held == 0


def test_control_a_skip_that_does_not_count_its_deaths_is_granted_the_lock_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_lock, "REPEATS_COUNTED", durable_lock.REPEATED)
    assert skipped_after_a_death().state(LOCK).held == 1


# A waiter gives up, and is handed the lock in that very moment: it gives it back.

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
