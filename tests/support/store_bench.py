"""A bench for the store: a table, a clock, what was pushed and observed, how far executions are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fairlock.aws.executions import Execution, Liveness
from fairlock.protocol import schema
from fairlock.protocol.model import Grant, KeepAliveRequest
from fairlock.protocol.outcomes import Queued, Reaped, Refusal
from fairlock.store.context import Event
from fairlock.store.reap import ExecutionEnded
from tests.support import (
    LOCK,
    TABLE,
    FakeClock,
    acquire,
    owner,
    release,
    store_over,
)
from tests.support.faulty_table import FaultyTable
from tests.support.operations import Operations
from tests.support.workflows import FakeWorkflows

RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:run"
OTHER_RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:other"


@dataclass
class Bench:
    """Stores over one table, and their workflow engine.

    Attributes:
        executions: what the engine says of an execution; of all others, that they run.
        events: what the stores have observed.
    """

    client: Any
    clock: FakeClock
    executions: dict[str, Execution] = field(default_factory=dict)
    workflows: FakeWorkflows = field(default_factory=FakeWorkflows)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workflows.runs = self.describe

    def store(self, client: Any = None, **seams: Any) -> Operations:  # noqa: ANN401 - a client, and a context's fields
        ours = {"workflows": self.workflows, "observe": self.events.append}
        return store_over(client or self.client, self.clock, **{**ours, **seams})

    def counting(self) -> tuple[FaultyTable, Operations]:
        client = FaultyTable(self.client)
        return client, self.store(client)

    def describe(self, execution_arn: str) -> Execution:
        return self.executions.get(execution_arn, Execution(Liveness.RUNNING))

    @property
    def pushed(self) -> list[str]:
        """The task tokens of the waiters that were told."""
        return [task_token for task_token, _ in self.workflows.woken]

    def grant(self, name: str, **fields: Any) -> Grant:  # noqa: ANN401 - fields of the request
        """An acquire that is granted."""
        answer = self.store().acquire(acquire(name, **fields))
        assert isinstance(answer, Grant), answer
        return answer

    def wait(self, name: str, **fields: Any) -> Grant | Queued | Refusal:  # noqa: ANN401 - fields of the request
        """An acquire of a workflow in the queue, a second after the last one."""
        self.clock.advance(1)
        place = {"task_token": name, "execution_arn": RUN}
        return self.store().acquire(acquire(name, waits=True, **{**place, **fields}))

    def pass_through(self, lock_name: str = LOCK) -> None:
        """Others release and give up: the lock forgets who did so before."""
        self.store().acquire(acquire("passing", lock_name=lock_name))
        self.store().release(release("passing", lock_name=lock_name))
        self.store().release(release("giving up", waits=True, lock_name=lock_name))

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

    def holders(self, lock_name: str = LOCK) -> list[str]:
        return [holder.owner_name for holder in self.store().read_state(lock_name).holders]

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


def workflow_heartbeat(name: str, task_token: str = "heartbeat", **fields: Any) -> KeepAliveRequest:  # noqa: ANN401 - fields of the acquisition
    acquisition = acquire(name, execution_arn=RUN, **fields)
    return KeepAliveRequest(acquisition=acquisition, execution_arn=RUN, task_token=task_token)


def claim_key(name: str, execution_arn: str = RUN, lock_name: str = LOCK) -> dict[str, Any]:
    return dict(schema.claim_key(execution_arn, lock_name=lock_name, owner_id=owner(name)))
