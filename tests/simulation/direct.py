"""A caller in any language: it knows the service's functions, JSON, and five rules.

The rules are those of docs/any-language.md. It sees nothing of Fairlock but texts that go out and
come back; some come late or never, and some of what it sends is delivered long after it gave up.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any, Final

from greenlet import getcurrent

from tests.simulation.clocks import NodeClock
from tests.simulation.engine import Process
from tests.simulation.functions import Json, Outcome
from tests.simulation.guard import Account
from tests.simulation.judge import Belief

_TIMEOUT_SECONDS: Final = 15.0
_LOST: Final = 0.02
_LATE: Final = 0.05
_LATEST_SECONDS: Final = 120.0
_LEASE_SECONDS: Final = 12
_MOST_RELEASES: Final = 20


@dataclass
class DirectCaller:
    """One program that invokes the functions.

    Attributes:
        account: where the functions are.
        process: its own.
        clock: same.
        queues: whether it joins the queue, or polls outside of it.
    """

    account: Account
    process: Process
    clock: NodeClock
    queues: bool

    def take(self, lock: str, work: float, max_wait: float) -> None:
        """Takes a lock, works under it, and releases it."""
        judge, engine = self.account.judge, self.account.engine
        owner = {"lock_name": lock, "owner_id": str(uuid.uuid4())}
        began = judge.begins_to_wait(lock)
        belief = self._acquire(owner, began, max_wait)
        judge.ends_waiting(lock)
        if belief is not None:
            judge.waits.append(engine.now - began)
            judge.outcomes["granted"] += 1
            self._work(owner, belief, work)
            judge.left(belief)
        self._release(owner)

    def _acquire(self, owner: Json, began: float, max_wait: float) -> Belief | None:
        request: Json = {**owner, "lease_seconds": _LEASE_SECONDS, "owner_name": "direct"}
        request |= {"queue": True} if self.queues else {"waiting_since_ms": self.clock.wall_ms()}
        off_ms = 0
        while self.account.engine.now < began + max_wait:
            sent, request["entered_at_ms"] = self.clock.monotonic(), self.clock.wall_ms() + off_ms
            answer = self._call("acquire", request)
            if answer is None:
                self.clock.wait(1.0)  # An error is no answer: it asks again.
                continue
            if answer["acquired"]:
                return self._believe(owner["lock_name"], answer, sent)
            if answer["reason"] == "ASK_AGAIN":
                off_ms = answer["entered_at_ms"] - self.clock.wall_ms()
            if "ticket" in answer:
                request["ticket"] = answer["ticket"]
            self.clock.wait(answer["retry_after_seconds"])
        self.account.judge.outcomes["timed out"] += 1
        return None

    def _believe(self, lock: str, answer: Json, sent: float) -> Belief:
        """It counts the lease from the moment before it sent the request."""
        self.ends_at = sent + answer["expires_in_seconds"]
        token = answer["fencing_token"]
        self.account.engine.trace(self.process.name, f"{lock}: holds, token {token}")
        return self.account.judge.granted(
            self.process.name,
            lock,
            limit=1,
            token=token,
            own_end=lambda: self.clock.true_time(self.ends_at),
        )

    def _work(self, owner: Json, belief: Belief, work: float) -> None:
        judge, until = self.account.judge, self.clock.monotonic() + work
        while (left := until - self.clock.monotonic()) > 0:
            self.clock.wait(min(left, _LEASE_SECONDS / 3))
            if self.clock.monotonic() >= self.ends_at:
                judge.outcomes["lost"] += 1
                return
            if not belief.is_forced:
                judge.wrote(self.process.name, belief.lock, belief.token)
            sent = self.clock.monotonic()
            answer = self._call("heartbeat", {**owner, "lease_seconds": _LEASE_SECONDS})
            if answer is None:
                continue
            if not answer["renewed"]:
                judge.outcomes["lost"] += 1
                return
            self.ends_at = max(self.ends_at, sent + answer["expires_in_seconds"])

    def _release(self, owner: Json) -> None:
        """Always, even if it gave up: the answer that granted the lock may have been lost."""
        for _ in range(_MOST_RELEASES):
            if self._call("release", {**owner, "queue": True}) is not None:
                self.account.judge.gone.add(owner["owner_id"])
                return
            self.clock.wait(1.0)

    def _call(self, function: str, request: Json) -> Json | None:
        """Invokes a function, and waits for the answer; None if there is none, or an error."""
        engine, functions = self.account.engine, self.account.functions
        chance, task = engine.random.random(), getcurrent()
        waits, payload = task.waits + 1, json.loads(json.dumps(request))

        def done(outcome: Outcome) -> None:
            if chance >= _LOST:
                engine.wake(task, waits, outcome)

        late = engine.random.random() * _LATEST_SECONDS if chance > 1 - _LATE else 0.0
        engine.after(late, functions.invoke, function, payload, done)
        outcome: Any = engine.wait(_TIMEOUT_SECONDS)
        if outcome is None or outcome.error:
            error = "no answer" if outcome is None else outcome.error
            self.account.judge.outcomes[f"direct: {error}"] += 1
            return None
        answer: Json = json.loads(json.dumps(outcome.answer))
        return answer
