"""What a state machine drives: the store over some DynamoDB, with faults that can be ordered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fairlock.protocol.schema import lock_key
from tests.support import TABLE, FakeClock, store_over
from tests.support.faults import lost_reply
from tests.support.operations import Operations
from tests.support.workflows import FakeWorkflows

Mutation = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Changes a request of this name on its way: how a wrong protocol is tried."""
_REQUESTS = ("update_item", "transact_write_items", "delete_item", "query")


class Killed(BaseException):
    """The process ended here."""


@dataclass
class FaultyClient:
    """Counts the requests of an operation; faults are ordered for the operation that comes next.

    Attributes:
        mutated: how many requests were changed on their way.
        loses_reply: whether the reply to the next write that happens gets lost.
        kill_at: number of the request at which the process dies.
        kill_done: whether that request still happens.
        interrupt_at: number of the request before which another caller acts.
        interruption: what the other caller does; None when it is done.
    """

    inner: Any
    mutate: Mutation | None = None
    mutated: int = 0
    count: int = 0
    loses_reply: bool = False
    kill_at: int | None = None
    kill_done: bool = False
    interrupt_at: int = 2
    interruption: Callable[[], None] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self.inner, name)
        if name not in _REQUESTS:
            return attribute
        return lambda **request: self._send(name, attribute, request)

    def begin(
        self,
        *,
        loses_reply: bool = False,
        kill_at: int | None = None,
        kill_done: bool = False,
        interrupt_at: int = 2,
        interruption: Callable[[], None] | None = None,
    ) -> None:
        """Orders the faults of the next operation; without any, all goes well."""
        self.count, self.loses_reply = 0, loses_reply
        self.kill_at, self.kill_done = kill_at, kill_done
        self.interrupt_at, self.interruption = interrupt_at, interruption

    def _send(self, name: str, send: Callable[..., Any], request: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        self.count += 1
        number = self.count
        if number == self.interrupt_at and self.interruption is not None:
            interrupt, self.interruption = self.interruption, None
            interrupt()
        if number == self.kill_at and not self.kill_done:
            raise Killed
        if self.mutate is not None:
            wrong = self.mutate(name, request)
            self.mutated += wrong != request
            request = wrong
        response = send(**request)
        if number == self.kill_at:
            raise Killed
        if self.loses_reply and name != "query":
            self.loses_reply = False
            raise lost_reply()
        return response


@dataclass
class Bench:
    """One clock, one table, and the store on top. A copy is another process at the same table."""

    dynamodb: Any
    mutate: Mutation | None = None
    clock: FakeClock = field(default_factory=FakeClock)
    workflows: FakeWorkflows = field(default_factory=FakeWorkflows)
    client: FaultyClient = field(init=False)
    store: Operations = field(init=False)

    def __post_init__(self) -> None:
        self.client = FaultyClient(self.dynamodb, self.mutate)
        self.store = store_over(self.client, self.clock, workflows=self.workflows)

    def item(self, lock: str) -> dict[str, Any]:
        found = self.dynamodb.get_item(TableName=TABLE, Key=lock_key(lock), ConsistentRead=True)
        item: dict[str, Any] = found.get("Item", {})
        return item

    def delete(self, lock: str) -> None:
        self.dynamodb.delete_item(TableName=TABLE, Key=lock_key(lock))
