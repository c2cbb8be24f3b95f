"""A bench for the store: a table, a clock, a workflow engine, and a wire that holds writes back."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from fairlock.aws.executions import Delivery, Execution, Liveness
from fairlock.errors import LockLost, LockStoreUnavailable
from fairlock.protocol import schema
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.items import new_waiter
from fairlock.protocol.model import (
    ForceReleaseRequest,
    Grant,
    Holder,
    KeepAliveRequest,
    LockState,
    Waiter,
)
from fairlock.protocol.outcomes import NotHeld, Queued, Reaped, Refusal, Released
from fairlock.store.context import Event
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import ExecutionEnded
from fairlock.testing import ManualClock
from tests.support import LOCK, TABLE, Operations, acquire, heartbeat, owner, release, store_over
from tests.support.clocks import WrongClock
from tests.support.faulty_table import ENDPOINT, WRITES, Fault, FaultyTable, writes_of


@dataclass
class FakeWorkflows:
    """A workflow engine that does what a test says, and remembers what it was told.

    Attributes:
        wakes: what becomes of a message to a waiter, or a function that tells.
        ends: what becomes of a message to a heartbeat state, or a function that tells.
        runs: what is known of an execution, or a function from its ARN.
        woken: the task tokens of waiters that were told, with their answers.
        ended: the task tokens of heartbeats that were ended, with the text of the loss.
        described: the ARNs that were asked about.
    """

    wakes: Delivery | Callable[[str, Any], Delivery] = Delivery.DELIVERED
    ends: Delivery | Callable[[str, Released | NotHeld | LockLost], Delivery] = Delivery.DELIVERED
    runs: Liveness | Callable[[str], Execution] = Liveness.UNKNOWN
    woken: list[tuple[str, Any]] = field(default_factory=list)
    ended: list[tuple[str, str | None]] = field(default_factory=list)
    described: list[str] = field(default_factory=list)

    def wake_waiter(self, task_token: str, answer: Grant | Refusal) -> Delivery:
        self.woken.append((task_token, answer))
        return self.wakes if isinstance(self.wakes, Delivery) else self.wakes(task_token, answer)

    def end_heartbeat(self, task_token: str, end: Released | NotHeld | LockLost) -> Delivery:
        self.ended.append((task_token, str(end) if isinstance(end, LockLost) else None))
        return self.ends if isinstance(self.ends, Delivery) else self.ends(task_token, end)

    def describe(self, execution_arn: str) -> Execution:
        self.described.append(execution_arn)
        if isinstance(self.runs, Liveness):
            return Execution(self.runs)
        return self.runs(execution_arn)


RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:run"
OTHER_RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:other"


@dataclass
class Bench:
    """Stores over one table, and their workflow engine.

    Attributes:
        own_clock: that of the stores, which may be wrong.
        executions: what the engine says of an execution; of all others, that they run.
        events: what the stores have observed.
    """

    client: Any
    clock: ManualClock
    own_clock: WrongClock = field(init=False)
    executions: dict[str, Execution] = field(default_factory=dict)
    workflows: FakeWorkflows = field(default_factory=FakeWorkflows)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.own_clock = WrongClock(self.clock)
        self.workflows.runs = self.describe

    def store(self, client: Any = None, **seams: Any) -> Operations:  # noqa: ANN401 - a client, and a context's fields
        ours = {"workflows": self.workflows, "observe": self.events.append}
        return store_over(self.over(client), self.own_clock, **{**ours, **seams})

    def over(self, client: Any = None) -> Any:  # noqa: ANN401 - a client
        """The table; or the table with a fault, or another client."""
        if isinstance(client, Fault):
            return FaultyTable(self.client, client)
        return self.client if client is None else client

    def counting(self) -> tuple[FaultyTable, Operations]:
        client = FaultyTable(self.client)
        return client, self.store(client)

    def requests(self, send: Callable[[Operations], object]) -> list[str]:
        """The requests of a call."""
        client, store = self.counting()
        send(store)
        return client.calls

    def describe(self, execution_arn: str) -> Execution:
        return self.executions.get(execution_arn, Execution(Liveness.RUNNING))

    @property
    def pushed(self) -> list[str]:
        """The task tokens of the waiters that were told."""
        return [task_token for task_token, _ in self.workflows.woken]

    @property
    def state(self) -> LockState:
        return self.store().read_state(LOCK)

    def ask(self, name: str, *, over: Any = None, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - a client, and fields of the request
        """An acquire."""
        return self.store(over).acquire(acquire(name, **fields))

    def grant(self, name: str, **fields: Any) -> Grant:  # noqa: ANN401 - same
        """An acquire that is granted."""
        answer = self.ask(name, **fields)
        assert isinstance(answer, Grant), answer
        return answer

    def refuse(self, name: str, **fields: Any) -> Refusal:  # noqa: ANN401 - same
        """An acquire that is refused."""
        answer = self.ask(name, **fields)
        assert isinstance(answer, Refusal), answer
        return answer

    def queue(self, name: str, **fields: Any) -> Queued:  # noqa: ANN401 - same
        """An acquire that waits, and gets a place."""
        answer = self.ask(name, **{"waits": True, **fields})
        assert isinstance(answer, Queued), answer
        return answer

    def renew(self, name: str, *, over: Any = None, **fields: Any) -> Grant | NotHeld:  # noqa: ANN401 - same
        """A heartbeat."""
        return self.store(over).heartbeat(heartbeat(name, **fields))

    def beat(
        self,
        name: str,
        task_token: str = "heartbeat",
        *,
        over: Any = None,  # noqa: ANN401 - same
        **fields: Any,  # noqa: ANN401 - same
    ) -> KeepAliveOutcome:
        """A heartbeat of the workflow that the lock is kept alive for."""
        return self.store(over).keep_alive(workflow_heartbeat(name, task_token, **fields))

    def release(self, name: str, *, over: Any = None, **fields: Any) -> Released | NotHeld:  # noqa: ANN401 - same
        return self.store(over).release(release(name, **fields))

    def wait(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
        """An acquire of a workflow in the queue, a second after the last one."""
        self.clock.advance(1)
        return self.ask(name, **{"waits": True, "task_token": name, "execution_arn": RUN, **fields})

    def gone(self, *task_tokens: str, then: Callable[[], object] = lambda: None) -> None:
        """No one waits with these any more, and this happens while that is found out."""

        def wake(task_token: str, _answer: object) -> Delivery:
            if task_token not in task_tokens:
                return Delivery.DELIVERED
            then()
            return Delivery.GONE

        self.workflows.wakes = wake

    def force(self, held: Grant | Holder) -> Released | None:
        """A release by force."""
        return self.store().force_release(by_force(held))

    def set_ceiling(self, limit: int | None, by: str = "olga") -> None:
        self.store().change_ceiling(ceiling(limit, by))

    def pass_through(self, lock_name: str = LOCK) -> None:
        """Others release and give up: the lock forgets who did so before."""
        self.ask("passing", lock_name=lock_name)
        self.release("passing", lock_name=lock_name)
        self.release("giving up", waits=True, lock_name=lock_name)

    def end(self, execution_arn: str = RUN, *, redrives: int = 0) -> None:
        self.executions[execution_arn] = Execution(Liveness.OVER, redrives)

    def redrive(self, execution_arn: str = RUN, *, redrives: int = 1) -> None:
        self.executions[execution_arn] = Execution(Liveness.RUNNING, redrives)

    def reap(
        self,
        execution_arn: str = RUN,
        *,
        second: bool = False,
        redrives: int = 0,
        client: Any = None,  # noqa: ANN401 - as for `store`
        **seams: Any,  # noqa: ANN401 - a context's fields
    ) -> Reaped:
        ended = ExecutionEnded(execution_arn=execution_arn, redrives=redrives, second_pass=second)
        return self.store(client, **seams).reap(ended)

    def come_back(self) -> None:
        """An execution ends, the first pass comes, and it is redriven."""
        self.end()
        self.reap()
        self.redrive()

    def waiter(self, name: str, *, seconds: float = 60, **fields: Any) -> Waiter:  # noqa: ANN401 - fields of the request
        """One that has just joined, and keeps its place for so long."""
        now_ms = self.clock.wall_ms()
        return Waiter(
            request=acquire(name, waits=True, **fields),
            entered_at_ms=now_ms,
            asked_at_ms=now_ms,
            expires_at_ms=now_ms + round(seconds * 1000),
        )

    def put_waiter(self, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - same
        """Puts it into the table, and nothing else: as if it had joined."""
        item = dict(new_waiter(self.waiter(name, **fields)))
        self.client.put_item(TableName=TABLE, Item=item)
        return item

    def bury(self, execution_arn: str = RUN) -> None:
        """An execution ends, and both passes come."""
        self.end(execution_arn)
        self.reap(execution_arn)
        self.clock.advance(40)
        self.reap(execution_arn, second=True)

    def holders(self, lock_name: str = LOCK) -> list[str]:
        return [holder.owner_name for holder in self.store().read_state(lock_name).holders]

    def item(self) -> dict[str, Any]:
        """The item of the lock."""
        return dict(self.client.get_item(TableName=TABLE, Key=schema.lock_key(LOCK))["Item"])

    def items(self, prefix: str) -> list[Any]:
        items: list[Any] = self.client.scan(TableName=TABLE)["Items"]
        return [item for item in items if item["pk"]["S"].startswith(prefix)]

    def claims(self, *, done: bool = False) -> list[Any]:
        """The claims whose lock may still have to be freed; or those that are done, too."""
        return [item for item in self.items("EXECUTION#") if done or "done" not in item]

    def waiters(self) -> list[str]:
        items = self.items("LOCK#")
        names = [item["owner_name"]["S"] for item in items if item["sk"]["S"] != "STATE"]
        return sorted(names)


def by_force(held: Grant | Holder) -> ForceReleaseRequest:
    return ForceReleaseRequest(
        lock_name=LOCK, fencing_token=held.fencing_token, requested_by="olga", reason="a test"
    )


def ceiling(limit: int | None, by: str = "olga") -> SetCeilingRequest:
    return SetCeilingRequest(lock_name=LOCK, limit=limit, requested_by=by, reason="a test")


def workflow_heartbeat(name: str, task_token: str = "heartbeat", **fields: Any) -> KeepAliveRequest:  # noqa: ANN401 - fields of the acquisition
    acquisition = acquire(name, execution_arn=RUN, **fields)
    return KeepAliveRequest(acquisition=acquisition, execution_arn=RUN, task_token=task_token)


def claim_key(name: str, execution_arn: str = RUN, lock_name: str = LOCK) -> dict[str, Any]:
    return dict(schema.claim_key(execution_arn, lock_name=lock_name, owner_id=owner(name)))


# A network that holds writes back, or copies them, and lets them land after everything else.

_TRUE = "attribute_not_exists(#no_such)"
_PLACEHOLDER = re.compile(r"[#:]\w+")


@dataclass
class Wire:
    """Passes requests on; holds back or copies the first write that has a text in its expressions.

    Attributes:
        held_back: whether that write only stays here, and its sender sees a time-out; else it
            happens, and a copy stays here.
        late: the write, once it was sent.
    """

    inner: Any
    text: str
    held_back: bool = False
    late: tuple[str, dict[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name not in WRITES:
            return attribute

        def call(**request: Any) -> Any:  # noqa: ANN401 - same
            if self.late is None and any(self.text in _expressions(w) for w in writes_of(request)):
                self.late = name, copy.deepcopy(request)
                if self.held_back:
                    raise ReadTimeoutError(endpoint_url=ENDPOINT)
            return attribute(**request)

        return call

    def land(self, *, without: tuple[str, ...] = ()) -> bool:
        """Lets the write land; tells whether it was written.

        Args:
            without: conditions that are taken out of it before.
        """
        assert self.late is not None, f"no write had {self.text!r}"
        name, request = self.late
        request = copy.deepcopy(request)
        request.pop("ClientRequestToken", None)  # DynamoDB forgets it after ten minutes.
        for condition in without:
            found = [w for w in writes_of(request) if condition in w["ConditionExpression"]]
            assert found, f"{condition!r} is in no condition"
            for write in found:
                _take_out(write, condition)
        try:
            getattr(self.inner, name)(**request)
        except ClientError:
            return False
        return True


def _expressions(write: dict[str, Any]) -> str:
    return f"{write.get('UpdateExpression', '')} | {write.get('ConditionExpression', '')}"


def _take_out(write: dict[str, Any], condition: str) -> None:
    write["ConditionExpression"] = write["ConditionExpression"].replace(condition, _TRUE)
    used = set(_PLACEHOLDER.findall(_expressions(write)))
    names = {**write["ExpressionAttributeNames"], "#no_such": "no_such"}
    write["ExpressionAttributeNames"] = {n: a for n, a in names.items() if n in used}
    values = write.get("ExpressionAttributeValues", {})
    write["ExpressionAttributeValues"] = {n: v for n, v in values.items() if n in used}


def late(bench: Bench, text: str, send: Callable[[Operations], object]) -> Wire:
    """The write with this text is held back: its sender gives it up."""
    wire = Wire(bench.client, text, held_back=True)
    with suppress(LockStoreUnavailable):
        send(bench.store(wire))
    return wire


def copied(bench: Bench, text: str, send: Callable[[Operations], object]) -> Wire:
    """The write with this text happens, and a copy of it stays on the wire."""
    wire = Wire(bench.client, text)
    send(bench.store(wire))
    return wire
