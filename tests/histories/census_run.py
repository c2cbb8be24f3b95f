"""One run of the census: callers of three kinds contend for one lock, over a network that delays.

Each does what such a caller does: asks again after an unknown outcome, polls while it waits, renews
and releases, or asks again under the same owner_id when it was evicted. A workflow may end, is
reaped then, and may be redriven. While a call stalls between two requests others act, and its own
caller may give it up and make another. At last everything lands, and who waits must be served.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.items import read_state
from fairlock.protocol.model import ForceReleaseRequest, Grant, LockState
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason
from fairlock.store.context import LockContext
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import ExecutionEnded
from fairlock.testing.fake_table import MemoryTable
from tests.histories.census_callers import (
    CLIENT,
    WORKFLOW,
    Caller,
    Message,
    Status,
    some_callers,
)
from tests.histories.census_judge import Judgement
from tests.histories.late_network import (
    LATEST_SECONDS,
    READ_TIMEOUT_SECONDS,
    Call,
    Landings,
    LateNetwork,
    Mutation,
    NamedTable,
)
from tests.model.replay import Names
from tests.support import LOCK, FakeClock, Operations, moved_clock
from tests.support.store_bench import FakeWorkflows

STEPS: Final = 28
_PAUSES: Final = (0.05, 0.3, 0.3, 1, 2, 8, 13)
_STALLS: Final = (0.2, 1.2, 2, 4, 8)
_STALLED: Final = 0.03
_OPERATES: Final = 0.08
_ROUNDS: Final = 16
_SECOND_PASS_SECONDS: Final = 36


@dataclass
class Run:
    """One run: a table, its callers, and what was found.

    Attributes:
        mutate: changes the writes, if there is a wrong protocol to be found.
        only_keep_alive: whether all callers are workflows that send heartbeats and end often.
        with_turns: whether operators limit and pause the lock, and callers ask for the newest only.
    """

    seed: int
    names: Names
    steps: int = STEPS
    mutate: Mutation | None = None
    only_keep_alive: bool = False
    with_turns: bool = False
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)  # noqa: S311 - no secret
        self.clock, self.table = FakeClock(), MemoryTable()
        self.names.forget()
        self._ends = 0.25 if self.only_keep_alive else 0.12
        self.found, self._stalls = Judgement(self.clock), False
        self.network = LateNetwork(
            self.table, self.clock, self.random, self.found.see, self._maybe_stall, self.mutate
        )
        budget = RetryBudget(clock=self.clock, random=self.random.random)
        workflows = FakeWorkflows(wakes=self._wake, runs=self._describe)
        self.executions: dict[str, Execution] = {}
        self.store = Operations(
            LockContext(
                table=NamedTable(
                    self.network, self.names, retry_budget=budget, aws_clock=moved_clock(self.clock)
                ),
                workflows=workflows,
                retry_budget=budget,
                random=self.random.random,
            )
        )
        self.callers = list(
            some_callers(
                self.random, only_keep_alive=self.only_keep_alive, with_turns=self.with_turns
            )
        )

    @property
    def landings(self) -> Landings:
        return self.network.landings

    def play(self) -> None:
        """Lets the callers take turns, and then serves all that wait."""
        for _ in range(self.steps):
            self.clock.advance(self.random.choice(_PAUSES))
            self.network.land_due()
            self._turn(self.random.choice(self.callers))
        self._settle()

    def _turn(self, caller: Caller) -> None:
        """One call of a caller, of the reaper, or of an operator."""
        chance = self.random.random()
        if self._reap_due():
            return
        if self.with_turns and self.random.random() < _OPERATES:
            self._set_ceiling(self.random.choice((0, 1, 2, None, None)))
            return
        if chance < 0.03:
            self._force()
        elif caller.status is Status.DEAD:
            self._redrive(caller)
        elif chance < self._ends and caller.kind == WORKFLOW and caller.status is not Status.IDLE:
            self._end(caller)
        else:
            self._go_on(caller, self.random.random())

    def _go_on(self, caller: Caller, chance: float) -> None:
        match caller.status:
            case Status.IDLE:
                self._ask(caller)
            case Status.ASKING:
                self._ask(caller) if chance < 0.8 else self._leave(caller)
            case Status.WAITING if chance < 0.15 and caller.listens:
                caller.listens = 0  # Its task timed out; it asks again with its next turn.
            case Status.WAITING:
                self._ask(caller) if chance < 0.8 else self._leave(caller)
            case Status.HOLDING if caller.kind != WORKFLOW and chance < 0.07:
                self.found.forget(caller.owner_id)  # The process is killed.
                caller.next()
            case Status.HOLDING if chance < 0.5 and caller.kind != WORKFLOW:
                self._renew(caller)
            case Status.HOLDING if chance < 0.5 and caller.keep_alive:
                self._keep_alive(caller)
            case Status.HOLDING | Status.LEAVING:
                self._leave(caller)
            case _:
                pass

    def _ask(self, caller: Caller) -> None:
        caller.begin(self.clock.now_ms)
        self.found.versions[caller.owner_id] = caller.version
        request = caller.acquire_request(self.random)
        token_before = self._token_of(caller)
        answer, call = self._call(caller, "acquire", lambda: self.store.acquire(request))
        if call is None:
            if caller.status is not Status.HOLDING:
                caller.status, caller.listens = Status.ASKING, 0
            return
        if answer is None or (caller.status is Status.HOLDING and not isinstance(answer, Grant)):
            return
        held = token_before is not None and token_before == self._token_of(caller)
        if held and not isinstance(answer, Grant) and not (call.interrupted or caller.redrives):
            self.found.wrong("a poll does not find the grant")
        if isinstance(answer, Grant):
            until_ms = round(answer.ends_at * 1000)
            self._told(caller, answer.fencing_token, until_ms)
        elif isinstance(answer, Queued):
            caller.status, caller.ticket = Status.WAITING, answer.entered_at_ms
            self.found.asked[caller.owner_id] = caller.asked
        elif answer.reason is RefusalReason.SUPERSEDED:
            self._superseded(caller)
        elif caller.asked == 1 or not caller.waits:
            self._is_over(caller)
        else:
            caller.status = Status.LEAVING

    def _renew(self, caller: Caller) -> None:
        answer, call = self._call(
            caller, "heartbeat", lambda: self.store.heartbeat(caller.heartbeat_request())
        )
        if call is None or answer is None:
            return
        if isinstance(answer, Grant):
            until_ms = round(answer.ends_at * 1000)
            self._told(caller, answer.fencing_token, until_ms)
            return
        self.found.forget(caller.owner_id)
        again = self.random.random() < 0.5
        caller.status = Status.ASKING if again else Status.LEAVING
        caller.ticket = caller.token = None

    def _keep_alive(self, caller: Caller) -> None:
        caller.asked += 1
        request = caller.keep_alive_request()
        outcome, call = self._call(caller, "keep_alive", lambda: self.store.keep_alive(request))
        if call is None or outcome is None:
            return
        if outcome in (KeepAliveOutcome.RENEWED, KeepAliveOutcome.REACQUIRED):
            token = self._token_of(caller)
            if token is not None:
                self._told(caller, token, 0)
        else:
            self.found.forget(caller.owner_id)
            caller.status = Status.LEAVING

    def _leave(self, caller: Caller) -> None:
        self.found.forget(caller.owner_id)
        request = caller.release_request()
        caller.status, caller.listens = Status.LEAVING, 0
        answer, call = self._call(caller, "release", lambda: self.store.release(request))
        if call is not None and answer is not None:
            self._is_over(caller)

    def _force(self) -> None:
        holders = self._state().holders
        if not holders:
            return
        holder = self.random.choice(holders)
        self.found.forced.add(holder.fencing_token)
        request = ForceReleaseRequest(
            lock_name=LOCK, fencing_token=holder.fencing_token, requested_by="olga", reason="test"
        )
        self._call(None, "force", lambda: self.store.force_release(request))

    def _set_ceiling(self, limit: int | None) -> None:
        request = SetCeilingRequest(
            lock_name=LOCK, limit=limit, requested_by="olga", reason=str(limit)
        )

        def change() -> bool:
            self.store.change_ceiling(request)
            return True

        answer, call = self._call(None, "ceiling", change)
        if answer is not None and call is not None:
            self.found.ceiling_answered(call)

    def _end(self, caller: Caller) -> None:
        """Its execution fails: two passes of the reaper follow."""
        assert caller.arn is not None
        self.found.note(f"{caller.owner_id.strip('-')} ends")
        self.found.forget(caller.owner_id)
        caller.died_as, caller.status, caller.call = caller.status, Status.DEAD, None
        caller.listens, now_ms = 0, self.clock.now_ms
        self.executions[caller.arn] = Execution(Liveness.OVER, caller.redrives, now_ms)
        soon_ms = round(self.random.random() * 3_000)
        late_ms = _SECOND_PASS_SECONDS * 1000 + soon_ms
        for second, delay_ms in ((False, soon_ms), (True, late_ms)):
            self.messages.append(Message(now_ms + delay_ms, caller.arn, caller.redrives, second))

    def _redrive(self, caller: Caller) -> None:
        assert caller.arn is not None
        if self.random.random() < 0.5:
            return
        self.found.note(f"{caller.owner_id.strip('-')} is redriven")
        caller.redrives += 1
        self.executions[caller.arn] = Execution(Liveness.RUNNING, caller.redrives)
        caller.status = caller.died_as
        if caller.status in (Status.WAITING, Status.IDLE):
            caller.status = Status.ASKING

    def _reap_due(self) -> bool:
        due = [message for message in self.messages if message.due_ms <= self.clock.now_ms]
        if not due:
            return False
        message = min(due)
        self.messages.remove(message)
        ended = ExecutionEnded(
            execution_arn=message.arn, redrives=message.redrives, second_pass=message.second
        )
        answer, _ = self._call(None, "reap", lambda: self.store.reap(ended), message.arn)
        if answer is None or not answer.complete:
            self.messages.append(
                Message(self.clock.now_ms + 5_000, message.arn, message.redrives, message.second)
            )
        elif message.second:
            self._reaped(message)
        return True

    def _reaped(self, message: Message) -> None:
        """An execution that stays as it is after its second pass is never heard of again."""
        for caller in self.callers:
            is_it = caller.arn == message.arn and caller.redrives == message.redrives
            if is_it and caller.status is Status.DEAD and self.random.random() < 0.8:
                self._is_over(caller)

    def _call(
        self,
        caller: Caller | None,
        kind: str,
        send: Callable[[], Any],
        arn: str | None = None,
    ) -> tuple[Any, Call | None]:
        """The answer to a call, and the call; none of it if the outcome is unknown.

        The answer is None if its caller has given it up.
        """
        call = Call(
            kind=kind,
            began_ms=self.clock.now_ms,
            owner_id="" if caller is None else caller.owner_id,
            execution_arn=arn if caller is None else caller.arn,
        )
        outer, self.network.call = self.network.call, call
        if caller is not None:
            caller.call = call
        try:
            answer = send()
        except LockStoreUnavailable as error:
            self.found.note(f"unknown: {kind} {call.owner_id.strip('-')}: {error}"[:100])
            return None, (None if caller is None or caller.call is call else call)
        finally:
            self.network.call = outer
        self.found.note(f"answered {kind} {call.owner_id.strip('-')}: {type(answer).__name__}")
        is_awaited = caller is None or caller.call is call
        return (answer if is_awaited else None), call

    def _maybe_stall(self) -> None:
        """Others act while a call stalls between two requests, and even its own caller."""
        call = self.network.call
        if self.network.calm or self._stalls or self.random.random() > _STALLED:
            return
        self._stalls = call.interrupted = True
        seconds = self.random.choice(_STALLS)
        self.clock.advance(seconds)
        self.network.land_due()
        mine = next((c for c in self.callers if c.call is call), None)
        others = [c for c in self.callers if c is not mine]
        is_given_up = seconds > READ_TIMEOUT_SECONDS and self.random.random() < 0.5
        if mine is not None and mine.kind != CLIENT and is_given_up:
            call.overtaken, mine.call, mine.listens = True, None, 0
            if call.kind == "acquire" and mine.status is not Status.HOLDING:
                mine.status = Status.ASKING
            others = [mine, mine, *others]
        for _ in range(self.random.choice((1, 2, 3))):
            self._turn(self.random.choice(others))
            self.clock.advance(self.random.choice((0.05, 0.5, 2)))
        self.network.call, self._stalls = call, False

    def _wake(self, task_token: str, answer: Grant | Refusal) -> Delivery:
        if not self.network.calm and self.random.random() < 0.03:
            return Delivery.UNKNOWN
        owner_id, _, number = task_token.rpartition("|")
        for caller in self.callers:
            if caller.owner_id == owner_id and caller.listens == int(number):
                caller.listens = 0
                if isinstance(answer, Grant):
                    self._told(caller, answer.fencing_token, answer.expires_at_ms)
                else:
                    self._superseded(caller)
                return Delivery.DELIVERED
        return Delivery.GONE

    def _describe(self, arn: str) -> Execution:
        return self.executions.get(arn, Execution(Liveness.RUNNING))

    def _told(self, caller: Caller, token: int, until_ms: int) -> None:
        caller.status, caller.token = Status.HOLDING, token
        until = None if caller.kind == WORKFLOW else until_ms
        self.found.told(caller.owner_id, token, until, self._state())

    def _superseded(self, caller: Caller) -> None:
        self.found.judge_superseded(caller.owner_id)
        self._is_over(caller)

    def _is_over(self, caller: Caller) -> None:
        self.found.note(f"{caller.owner_id.strip('-')} is over")
        self.found.forget(caller.owner_id)
        self.found.over[caller.owner_id] = self.clock.now_ms
        if caller.arn is not None and caller.status is not Status.DEAD:
            self.executions[caller.arn] = Execution(Liveness.RUNNING, caller.redrives)
        caller.next()

    def _state(self) -> LockState:
        return read_state(self.table.state(LOCK))

    def _token_of(self, caller: Caller) -> int | None:
        holder = self._state().holder(caller.owner_id)
        return None if holder is None else holder.fencing_token

    def _settle(self) -> None:
        """Everything lands, holders release, and all others are served within some rounds.

        Executions go on for a while after their release, and are over by now.
        """
        self._calm_down()
        for _ in range(_ROUNDS):
            for caller in self.callers:
                if caller.status is Status.DEAD and not self.messages:
                    self._is_over(caller)
                elif caller.status in (Status.ASKING, Status.WAITING):
                    self._ask(caller)
                if caller.status in (Status.HOLDING, Status.LEAVING):
                    self._leave(caller)
            while self._reap_due():
                pass
            if all(caller.status is Status.IDLE for caller in self.callers):
                return
            self.clock.advance(7)
        self.found.wrong("a caller is never served")

    def _calm_down(self) -> None:
        self.network.calm = True
        running = {caller.arn for caller in self.callers}
        for arn in self.executions.keys() - running:
            self.executions[arn] = Execution(Liveness.OVER, self.executions[arn].redrives)
        self.clock.advance(LATEST_SECONDS)
        self.network.land_due()
        if self.with_turns:
            self._set_ceiling(None)
        while self._reap_due():
            pass
