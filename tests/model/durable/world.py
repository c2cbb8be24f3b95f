"""What may happen to durable executions, one move at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from aws_durable_execution_sdk_python.exceptions import SuspendExecution

from fairlock.aws import executions as executions_module
from fairlock.aws.executions import Liveness
from fairlock.durable import durable_lock, hold
from fairlock.errors import InvalidRequest, LockLost, LockStoreUnavailable, LockWaitTimeout
from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Refusal
from fairlock.store.reap import ExecutionEnded
from fairlock.testing.fake_table import MemoryTable
from fairlock.testing.manual_clock import START_MS, ManualClock
from fairlock.wire.answers import acquire_answer, release_answer
from fairlock.wire.requests import parse_acquire, parse_release
from fairlock.wire.rules import callback_id_in
from tests.model import search
from tests.model.durable.scenes import (
    DurableScene,
    Execution,
    Invariant,
    Move,
    Recorded,
    RecordedContext,
    State,
    Stopped,
)
from tests.model.numbered_tables import Numbered
from tests.model.scene import Fault, Faults, spend, spent
from tests.support import Operations, acquire, release, store_over

LOCK: Final = "customer"
_BEGAN: Final = START_MS / 1000
_ARN: Final = "arn:aws:lambda:us-east-1:123456789012:function:f:1/durable-execution/run/"


class World(search.Model):
    """All moves of a scene; the service's calls are one move each."""

    scene: DurableScene

    def __init__(self, scene: DurableScene) -> None:
        super().__init__(scene)
        self._tables = Numbered()
        table = MemoryTable()
        for name in scene.begin:
            store_over(table, ManualClock()).acquire(acquire(name, lock_name=LOCK))
        self.start = State(self.number(table), scene.actors, bool(scene.begin), scene.faults)

    def owner_ids(self, state: State) -> dict[str, int]:
        """The holders, each with its fencing token."""
        lock = store_over(self.table(state), ManualClock()).read_state(LOCK)
        return {holder.owner_id: holder.fencing_token for holder in lock.holders}

    def table(self, state: State) -> MemoryTable:
        return MemoryTable(dict(self._tables.values[state.table]))

    def is_asleep(self, state: State, at: int) -> str | None:
        """The name of the operation that an execution sleeps on; None if it is not asleep."""
        play = _Play(self, state, at, left=0)
        play.run()
        return play.asleep_on

    def broken_by(self, _state: State, move: Move) -> Invariant | None:
        return move.to.fault if move.to.fault in self.scene.invariants else None

    def broken_in(self, state: State) -> Invariant | None:
        has_lost = Fault.LOST_PUSH in spent(self.scene.faults, state.left)
        if Invariant.WAKE_UP not in self.scene.invariants or has_lost:
            return None
        owners = self.owner_ids(state)
        for at, execution in enumerate(state.executions):
            holds = any(owner.startswith(f"owner-of-{at}-") for owner in owners)
            if holds and execution.status == "running":
                asleep = self.is_asleep(state, at)
                if asleep is not None and "granted" in asleep:
                    return Invariant.WAKE_UP
        return None

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> Invariant | None:
        if any(move.must for move in moves):
            return None
        if any(each.status == "running" for each in state.executions):
            return self.pick((Invariant.ENDED, False))
        is_free = not self.owner_ids(state) and not self.table(state).waiters(LOCK)
        return self.pick((Invariant.FREE, is_free))

    def _moves(self, state: State) -> Iterator[Move]:
        for at, execution in enumerate(state.executions):
            if execution.status == "running":
                yield from self._moves_of(state, at, execution)
        if state.anna_holds:
            table = self.table(state)
            play = _Service(self, state, table)
            play.store.release(release("anna", lock_name=LOCK))
            yield Move(play.state()._replace(anna_holds=False), "anna releases", must=True)
        stopped = [at for at, each in enumerate(state.executions) if each.status == "stopped"]
        if stopped and state.passes < 2:
            play = _Service(self, state, self.table(state))
            ended = ExecutionEnded(
                execution_arn=f"{_ARN}{stopped[0]}", second_pass=state.passes == 1
            )
            play.store.reap(ended)
            name = f"reap pass {state.passes + 1}"
            yield Move(play.state()._replace(passes=state.passes + 1), name, must=True)

    def _moves_of(self, state: State, at: int, execution: Execution) -> Iterator[Move]:
        asleep = self.is_asleep(state, at)
        if asleep is None:
            yield from self._operations(state, at)
        elif "granted" in asleep:
            # Only a push, or the end of the fallback period.
            waits_in_vain = f"{_ARN}{at}|{asleep}" not in self._wanted(state)
            must = waits_in_vain or execution.is_late
            left = state.left if must else spend(state.left, Fault.TIMEOUT)
            if left is not None:
                later = execution.recorded(asleep, Recorded("timed out"))
                to = state.with_(at, later)._replace(left=left)
                yield Move(to, f"{at}: the callback {asleep!r} {Fault.TIMEOUT}", must=must)
        else:
            to = state.with_(at, execution.recorded(asleep, Recorded("done")))
            yield Move(to, f"{at}: {asleep!r} is over", must=True)
        if self.scene.gives_up and not execution.is_late:
            to = state.with_(at, execution._replace(is_late=True))
            yield Move(to, f"{at}: its longest wait is over", must=False)
        if (left := spend(state.left, Fault.STOP)) is not None:
            to = state.with_(at, execution._replace(status="stopped"))
            yield Move(to._replace(left=left), f"{at}: is {Fault.STOP}", must=False)

    def _operations(self, state: State, at: int) -> Iterator[Move]:
        for faults in ((), (Fault.KILL,), (Fault.LOST_PUSH,), (Fault.LOST_PUSH, Fault.KILL)):
            left: Faults | None = state.left
            for fault in faults:
                left = None if left is None else spend(left, fault)
            if left is None:
                continue
            loses, dies = Fault.LOST_PUSH in faults, Fault.KILL in faults
            play = _Play(self, state, at, loses=loses, dies=dies)
            to = play.run()
            if play.service.pushed or not loses:
                what = ", ".join(play.context.performed) or "ends"
                name = f"{at}: {what}{' †' if dies else ''}{', push lost' if loses else ''}"
                yield Move(to._replace(left=left), name, must=not faults)

    def _wanted(self, state: State) -> set[str]:
        """The callbacks that someone will complete: of waiters in the queue."""
        tokens = [item.get("task_token") for item in self.table(state).waiters(LOCK)]
        return {_callback_of(token["S"]) for token in tokens if token}

    def number(self, table: MemoryTable) -> int:
        frozen = json.dumps(sorted(table.items.items()), sort_keys=True, default=str)
        return self._tables.number(frozen, dict(table.items))


@dataclass
class _Service:
    """The functions of the service, and the engine behind them, in one move."""

    world: World
    before: State
    table: MemoryTable
    loses: bool = False
    pushed: bool = False
    executions: list[Execution] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.executions = [*self.before.executions]

    @property
    def store(self) -> Operations:
        return store_over(self.table, ManualClock(), workflows=self)

    def state(self) -> State:
        number = self.world.number(self.table)
        return self.before._replace(table=number, executions=tuple(self.executions))

    def acquire(self, request: dict[str, Any]) -> dict[str, Any]:
        return acquire_answer(self.store.acquire(parse_acquire(request)))

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = release_answer(self.store.release(parse_release(request)))
        if self.world.scene.passes_through:
            self.store.acquire(acquire("zoe", lock_name=LOCK, owner_id=f"zoe-{'-' * 16}"))
            self.store.release(release("zoe", lock_name=LOCK, owner_id=f"zoe-{'-' * 16}"))
        return answer

    def wake_waiter(self, token: str, grant: Grant | Refusal) -> executions_module.Delivery:
        arn, _, name = _callback_of(token).partition("|")
        at = int(arn.removeprefix(_ARN))
        execution = self.executions[at]
        if execution.status != "running" or dict(execution.log)[name].status != "started":
            return executions_module.Delivery.GONE
        self.pushed = True
        if self.loses:
            return executions_module.Delivery.UNKNOWN
        result = json.dumps(json.dumps(acquire_answer(grant)))
        self.executions[at] = execution.recorded(name, Recorded("done", result))
        return executions_module.Delivery.DELIVERED

    def end_heartbeat(self, *_: object) -> executions_module.Delivery:
        raise NotImplementedError

    def describe(self, arn: str) -> executions_module.Execution:
        runs = self.executions[int(arn.removeprefix(_ARN))].status == "running"
        return executions_module.Execution(Liveness.RUNNING if runs else Liveness.OVER)


@dataclass
class _Play:
    """One execution goes on, by one operation at most."""

    world: World
    state: State
    at: int
    left: int = 1
    loses: bool = False
    dies: bool = False
    asleep_on: str | None = None
    fault: Invariant | None = None
    service: _Service = field(init=False)
    context: RecordedContext = field(init=False)

    def __post_init__(self) -> None:
        execution = self.state.executions[self.at]
        table = self.world.table(self.state)
        self.service = _Service(self.world, self.state, table, loses=self.loses)
        self.context = RecordedContext(
            arn=f"{_ARN}{self.at}",
            log=dict(execution.log),
            left=self.left,
            dies=self.dies,
        )

    def run(self) -> State:
        execution = self.state.executions[self.at]
        now = _BEGAN + (10**6 if execution.is_late else 0)
        made = [execution.entered]

        # An entry takes its time right after its owner_id: at the beginning, if it is late, too.
        times: list[float] = []

        def owner_id() -> str:
            made[0] += 1
            times.append(_BEGAN)
            return f"owner-of-{self.at}-number-{made[0]}"

        clock = SimpleNamespace(time=lambda: times.pop() if times else now)
        with (
            patch.object(durable_lock, "time", clock),
            patch.object(durable_lock, "uuid", SimpleNamespace(uuid4=owner_id)),
        ):
            status = self._outcome()
        # Pushes may have reached others, and even this one.
        mine = self.service.executions[self.at]
        log = {**self.context.log, **{k: v for k, v in mine.log if self._is_newer(k, v)}}
        self.service.executions[self.at] = mine._replace(
            status=status, log=tuple(log.items()), entered=made[0]
        )
        return self.service.state()._replace(fault=self.fault or self.state.fault)

    def _is_newer(self, name: str, recorded: Recorded) -> bool:
        return name in self.context.log and recorded.status == "done" and "granted" in name

    def _outcome(self) -> str:
        context: Any = self.context
        try:
            with hold(context, LOCK, service=self.service, max_wait=timedelta(hours=1)) as lock:
                context.step(lambda _: self._work(lock), name="work")
                context.wait(name="sleep")
                context.step(lambda _: self._work(lock), name="more work")
                if self.world.scene.fails:
                    int("no number")
        except Stopped:
            return "running"
        except SuspendExecution as suspended:
            self.asleep_on = str(suspended)
            return "running"
        except LockWaitTimeout:
            return "late"
        except LockLost:
            self.fault = Invariant.FALSE_LOSS
            return "lost"
        except InvalidRequest:  # A ValueError too, but a defect: no run makes an invalid request.
            raise
        except (ValueError, LockStoreUnavailable):
            return "failed"
        return "done"

    def _work(self, lock: Any) -> None:  # noqa: ANN401 - a DurableLock
        held = self.service.store.read_state(LOCK).holder(lock.owner_id)
        if held is None or held.fencing_token != lock.fencing_token:
            self.fault = Invariant.HELD


def _callback_of(token: str) -> str:
    """ARN and name of the callback that a task token is the id of."""
    return bytes.fromhex(callback_id_in(token) or "").decode()
