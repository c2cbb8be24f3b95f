"""EventBridge and SQS: from the end of an execution to a batch for the reaper.

Sources: the EventBridge user guide ("Event delivery": at least once, retried for 24 hours; "Amazon
EventBridge quotas": deliveries a second), the Step Functions developer guide (status events are
best effort), the SQS developer guide ("Visibility timeout", "At-least-once delivery", "Dead-letter
queues", "Delay queues"), and "Using Lambda with Amazon SQS" of the Lambda developer guide: five
batches at first, then five more a second up to the mapping's maximum concurrency; partial batch
responses; a throttled batch is tried again until its messages are visible again.
"""

from __future__ import annotations

import heapq
import itertools
import json
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.engine import START, Bucket, Engine, Quota
from tests.simulation.faults import EventFaults
from tests.simulation.functions import Functions, Json, Outcome
from tests.simulation.versions import recorded

_DELIVERY_SECONDS: Final = 0.5
_DELIVERY_SPREAD: Final = 0.5
_REQUEST_SECONDS: Final = 0.01
_RECEIVE_SECONDS: Final = 0.02
_FIRST_BATCHES: Final = 5
_MORE_BATCHES_A_SECOND: Final = 5.0
_LONGEST_PAUSE_SECONDS: Final = 10.0


class EventBus:
    """EventBridge with the service's rule, whose target is the reaper's queue."""

    def __init__(self, engine: Engine, faults: EventFaults, quota: Quota, queue: Queue) -> None:
        self._engine, self._faults, self._queue = engine, faults, queue
        self._bucket = Bucket(engine, quota)
        self.uses()
        self._on_the_way = 0

    def uses(self, reaper: Json | None = None) -> None:
        """Has this rule from now on; None for that of today's stack."""
        self._reaper = recorded()["reaper"] if reaper is None else reaper

    def is_idle(self) -> bool:
        """Whether all events that are not lost were delivered."""
        return not self._on_the_way

    def publish(self, detail: Json) -> None:
        """A status event: matched, made a message and delivered, perhaps late, twice or never."""
        engine, faults, random = self._engine, self._faults, self._engine.random
        if detail["status"] not in self._reaper["ends"]:
            return
        since = engine.now - START
        if random.random() < faults.lost or any(a <= since < b for a, b in faults.lost_spans):
            engine.faults["lost events"] += 1
            return
        body = self._message(detail)
        for _ in range(2 if random.random() < faults.twice else 1):
            delay = random.lognormvariate(0, _DELIVERY_SPREAD) * _DELIVERY_SECONDS
            if random.random() < faults.late:
                engine.faults["late events"] += 1
                delay += random.random() * faults.late_seconds
            self._on_the_way += 1
            engine.after(delay + self._bucket.reserve(), self._deliver, body)

    def _deliver(self, body: str) -> None:
        self._on_the_way -= 1
        self._queue.send(body)

    def _message(self, detail: Json) -> str:
        event = {"detail": detail, "time": "1970-01-01T00:00:00Z"}
        body: str = self._reaper["message"]
        for name, path in self._reaper["paths"].items():
            found: Any = event
            for step in path.removeprefix("$.").split("."):
                found = found[step]
            body = body.replace(f"<{name}>", str(found))
        return body


@dataclass(eq=False, slots=True)
class _Message:
    """One message; `number` changes with each time it is hidden."""

    ident: int
    body: str
    receipts: int = 0
    number: int = 0
    is_gone: bool = False

    @property
    def receipt(self) -> str:
        return f"{self.ident}.{self.receipts}"


class Queue:
    """The reaper's queue, its dead-letter queue, and the mapping that invokes the function.

    Attributes:
        dead: messages that were received too often.
    """

    def __init__(
        self, engine: Engine, faults: EventFaults, functions: Functions, concurrency: int
    ) -> None:
        settings = recorded()["reaper"]
        self._engine, self._faults, self._functions = engine, faults, functions
        self._batch, self._concurrency = settings["batch"], concurrency
        self._visibility, self._tries = settings["visibility timeout"], settings["tries"]
        self._visible: list[tuple[float, int, int, _Message]] = []
        self._in_flight: dict[str, _Message] = {}
        self._order = itertools.count()
        self._left = self._running = 0
        self._busy_since = engine.now
        self._polls_at = float("inf")
        self.dead: list[str] = []

    def send(self, body: str, delay: float = 0.0) -> None:
        self._left += 1
        self._show(_Message(next(self._order), body), delay)

    def hide(self, receipt: str, seconds: float) -> None:
        """Lets a message that was received come again after so many seconds."""
        message = self._in_flight.get(receipt)
        if message is not None and not message.is_gone:
            self._show(message, seconds)

    def is_empty(self) -> bool:
        return not self._left

    def _show(self, message: _Message, delay: float) -> None:
        message.number += 1
        at = self._engine.now + delay
        heapq.heappush(self._visible, (at, next(self._order), message.number, message))
        self._poll_at(at)

    def _poll_at(self, at: float) -> None:
        if at < self._polls_at:
            self._polls_at = at
            self._engine.at(at + _RECEIVE_SECONDS, self._poll, at)

    def _poll(self, at: float) -> None:
        """The mapping takes batches as long as it may, and there are messages."""
        if at != self._polls_at:
            return  # Another look was planned, for an earlier moment.
        self._polls_at = float("inf")
        now = self._engine.now
        if self._running == 0:
            self._busy_since = now
        grown = _FIRST_BATCHES + int((now - self._busy_since) * _MORE_BATCHES_A_SECOND)
        allowed = min(self._concurrency, grown)
        while self._running < allowed:
            batch = self._receive(now)
            if not batch:
                break
            self._running += 1
            self._invoke(batch, now + self._visibility)
        if self._running >= allowed and allowed < self._concurrency:
            self._poll_at(now + 1 / _MORE_BATCHES_A_SECOND)
        elif self._running < allowed and self._visible:
            self._poll_at(max(now, self._visible[0][0]))

    def _receive(self, now: float) -> list[_Message]:
        batch: list[_Message] = []
        while self._visible and self._visible[0][0] <= now and len(batch) < self._batch:
            _, _, number, message = heapq.heappop(self._visible)
            if message.is_gone or message.number != number:
                continue
            if message.receipts >= self._tries:
                self._is_done(message)
                self.dead.append(message.body)
                continue
            message.receipts += 1
            batch.append(message)
        for message in batch:
            self._show(message, self._visibility)
            self._in_flight[message.receipt] = message
        return batch

    def _invoke(self, batch: list[_Message], until: float) -> None:
        records = [
            {
                "messageId": str(message.ident),
                "receiptHandle": message.receipt,
                "body": message.body,
                "attributes": {"ApproximateReceiveCount": str(message.receipts)},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
            }
            for message in batch
        ]
        receipts = [record["receiptHandle"] for record in records]
        engine = self._engine

        def done(outcome: Outcome) -> None:
            is_throttled = outcome.error == "Lambda.TooManyRequestsException"
            if is_throttled and engine.now + _LONGEST_PAUSE_SECONDS < until:
                pause = 1 + engine.random.random() * (_LONGEST_PAUSE_SECONDS - 1)
                engine.after(pause, self._functions.invoke, "reap", {"Records": records}, done)
                return
            self._running -= 1
            failed = {str(message.ident) for message in batch}
            if not outcome.error:
                failures = outcome.answer["batchItemFailures"]
                failed = {failure["itemIdentifier"] for failure in failures}
            for message, receipt in zip(batch, receipts, strict=True):
                self._in_flight.pop(str(receipt), None)
                if str(message.ident) not in failed:
                    self._delete(message)
            self._poll_at(engine.now)

        self._functions.invoke("reap", {"Records": records}, done)

    def _delete(self, message: _Message) -> None:
        self._is_done(message)
        if self._engine.random.random() < self._faults.twice:
            self._left += 1
            again = _Message(message.ident, message.body, message.receipts)
            self._show(again, self._engine.random.random() * self._visibility)

    def _is_done(self, message: _Message) -> None:
        message.is_gone = True
        self._left -= 1


class SqsClient:
    """A client of boto3 for the queue."""

    def __init__(self, engine: Engine, queue: Queue) -> None:
        self._engine, self._queue = engine, queue

    def send_message(self, **request: Any) -> Json:  # noqa: ANN401 - as boto3 takes it
        json.loads(request["MessageBody"])
        self._engine.wait(_REQUEST_SECONDS)
        self._queue.send(request["MessageBody"], request["DelaySeconds"])
        return {}

    def change_message_visibility(self, **request: Any) -> Json:  # noqa: ANN401 - as boto3 takes it
        self._engine.wait(_REQUEST_SECONDS)
        self._queue.hide(request["ReceiptHandle"], request["VisibilityTimeout"])
        return {}
