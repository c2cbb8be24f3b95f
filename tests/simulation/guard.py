"""Guarded executions: an account of AWS with the service in it, and what its workflows believe.

An execution believes to hold its lock from the answer of acquire to its call of release, or to its
own end. What it does meanwhile, the state `Work`, is a function of the user: it takes as long as
the input says, fails if the input says so, and writes in the middle to a store that takes no older
fencing token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.engine import QUOTAS, Engine
from tests.simulation.events import EventBus, Queue, SqsClient
from tests.simulation.functions import Done, Functions, Json, Outcome
from tests.simulation.judge import Belief, Judge
from tests.simulation.states import Execution, Flow
from tests.simulation.stepfunctions import StepFunctions, StepFunctionsClient
from tests.simulation.versions import machine, recorded
from tests.simulation.world import World

_KEPT: Final = ("RENEWED", "REACQUIRED")


class Account:
    """One account and region with the lock service, and the workflows that use it.

    It has a share of AWS's default quotas: `scale`.

    Attributes:
        judges_releases: whether an execution that ends by itself must have freed its locks.
        workflows: boto3's client for Step Functions.
        lost: executions that were told of a loss, though they were never redriven.
    """

    def __init__(self, world: World, *, scale: float = 1.0) -> None:
        engine, faults = world.engine, world.faults.events
        self.world, self.engine, self.judge = world, engine, world.judge
        # It judges clients, by labels that executions do not have.
        world.recovery.judges = lambda _lock: False
        world.database.scale(scale)
        self.judges_releases = False
        self.lost: list[str] = []
        clients: dict[str, Any] = {}
        concurrency = max(1, round(recorded()["reaper"]["concurrency"] * scale))
        quotas = {name: quota.scaled(scale) for name, quota in QUOTAS.items()}
        self.functions = Functions(world, clients, scale)
        self.queue = Queue(engine, faults, self.functions, concurrency)
        self.bus = EventBus(engine, faults, quotas["PutEvents"], self.queue)
        self.step_functions = StepFunctions(
            engine, quotas, self._invoke, self.bus.publish, faults.lost_pushes
        )
        self.workflows = clients["stepfunctions"] = StepFunctionsClient(self.step_functions)
        clients["sqs"] = SqsClient(engine, self.queue)

    def start(
        self,
        name: str,
        given: Json,
        *,
        form: str = "queue",
        definition: Json | None = None,
        ended: Callable[[Execution, str], object] = lambda _execution, _status: None,
    ) -> Execution:
        """Starts an execution of a recorded machine; the run is over when all have ended."""
        self.world.actors += 1
        watcher = GuardWatcher(self, name, ended)
        found = machine(form) if definition is None else definition
        return self.step_functions.start(form, found, name, given, watcher)

    def _invoke(self, function: str, payload: Json, done: Done) -> None:
        if function != "work":
            self.functions.invoke(function, payload, done)
            return
        outcome = Outcome(answer={})
        if payload.get("fails"):
            outcome = Outcome(error="WorkFailed", cause="as the input says")
        self.engine.after(payload["work"], done, outcome)


@dataclass(eq=False, slots=True)
class _Acquisition:
    """What one flow of an execution knows of its lock."""

    lock: str
    limit: int
    waits_since: float | None = None
    belief: Belief | None = None


class GuardWatcher:
    """Is told what an execution does, and tells the judge what it believes; `ended` comes last."""

    def __init__(
        self, account: Account, name: str, ended: Callable[[Execution, str], object]
    ) -> None:
        self._account, self._name, self._ended = account, name, ended
        self._judge: Judge = account.judge
        self._engine: Engine = account.engine
        self._owned: dict[str, _Acquisition] = {}
        self._released: list[Belief] = []

    def calls(self, flow: Flow, function: str, payload: Json) -> None:
        """A call of acquire begins a wait, one of release ends a belief."""
        if function == "acquire":
            owned = self._owned.get(payload["owner_id"])
            if owned is None:
                limit = payload.get("limit", 1)
                owned = self._owned[payload["owner_id"]] = _Acquisition(payload["lock_name"], limit)
                owned.waits_since = self._judge.begins_to_wait(owned.lock)
        elif function == "release":
            owned = self._owned.get(payload["owner_id"])
            if owned is not None and owned.belief is not None:
                self._released.append(owned.belief)
            self._leaves(payload["owner_id"])
        elif function == "work":
            self._works(flow, payload)

    def answers(self, flow: Flow, function: str, outcome: Outcome) -> None:
        """After a redrive, a heartbeat that finds or takes the lock begins a belief again."""
        if function != "heartbeat" or outcome.error or not flow.execution.redrives:
            return
        for owner, lock in _locks_around(flow).items():
            tokens = self._judge.holders_of(lock)
            if owner in self._owned or outcome.answer["kept"] not in _KEPT or not tokens:
                continue
            owned = self._owned[owner] = _Acquisition(lock, 1)
            self._judge.outcomes["held again"] += 1
            self._engine.trace(self._name, f"{lock}: holds again, token {tokens[0]}")
            owned.belief = self._judge.granted(self._name, lock, limit=1, token=tokens[0])

    def completes(self, result: Any) -> None:  # noqa: ANN401 - any JSON
        """The answer of acquire that grants the lock begins a belief."""
        answer = result.get("Payload", result) if isinstance(result, dict) else None
        if not isinstance(answer, dict) or not answer.get("acquired"):
            return
        owned = self._owned.get(answer.get("owner_id", ""))
        if owned is None or owned.belief is not None or owned.waits_since is None:
            return
        self._judge.waits.append(self._engine.now - owned.waits_since)
        self._judge.outcomes["granted"] += 1
        token = answer["fencing_token"]
        self._engine.trace(self._name, f"{owned.lock}: holds, token {token}")
        owned.belief = self._judge.granted(self._name, owned.lock, limit=owned.limit, token=token)
        self._no_longer_waits(owned)

    def raises(self, flow: Flow, error: str) -> None:
        """A lost lock ends the belief of all who work under it."""
        if error == "LockLost":
            self._judge.outcomes["lost"] += 1
            if not flow.execution.redrives:
                self._account.lost.append(self._name)
            self.stopped(flow)

    def stopped(self, flow: Flow) -> None:
        """No state of this flow runs any more; what it holds is held by no one."""
        for owner in _locks_around(flow):
            self._leaves(owner)

    def ended(self, execution: Execution, status: str, error: str) -> None:
        """Whatever it believed, it does no more."""
        self._engine.trace(self._name, f"{status} {error}".rstrip())
        self._judge.outcomes[error or status.lower()] += 1
        for owner in list(self._owned):
            self._leaves(owner)
        self._judge.ended.update(self._owned)
        self._owned.clear()
        if self._account.judges_releases and status in {"SUCCEEDED", "FAILED"}:
            for belief in self._released:
                is_free = belief.token not in self._judge.holders_of(belief.lock)
                what = f"{belief.lock}: {self._name} has ended, and token {belief.token} holds"
                self._judge.require("released before the end", is_free, what)
        self._account.world.actors -= 1
        self._ended(execution, status)

    def _leaves(self, owner: str) -> None:
        owned = self._owned.get(owner)
        if owned is None:
            return
        self._no_longer_waits(owned)
        if owned.belief is not None:
            self._judge.left(owned.belief)
            owned.belief = None

    def _no_longer_waits(self, owned: _Acquisition) -> None:
        if owned.waits_since is not None:
            owned.waits_since = None
            self._judge.ends_waiting(owned.lock)

    def _works(self, flow: Flow, payload: Json) -> None:
        """In the middle of its work it writes, as long as it believes that it may."""
        for owner in _locks_around(flow):
            owned = self._owned.get(owner)
            if owned is not None and owned.belief is not None and owned.limit == 1:
                self._engine.after(payload["work"] / 2, self._writes, owned.belief)

    def _writes(self, belief: Belief) -> None:
        if belief.left_at is None and not belief.is_forced:
            self._judge.wrote(self._name, belief.lock, belief.token)


def _locks_around(flow: Flow) -> dict[str, str]:
    """The owner ids in the variables of the guards around the state of a flow, with their locks."""
    variables = [each for each in flow.variables.values() if isinstance(each, dict)]
    return {each["owner_id"]: each["lock_name"] for each in variables if "owner_id" in each}
