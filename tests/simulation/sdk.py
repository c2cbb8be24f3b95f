"""The AWS SDK of one process, and the network behind it.

What botocore does around a request in its "standard" mode (botocore/retries/standard.py): up to
three sendings, after throttles, 5xx, time-outs and failed connections; pauses at random, up to
1, 2, 4 … s; and a quota of 500 tokens, so that an outage does not multiply the load. The time-outs
are those that `fairlock/aws/retry.py` sets. The answer of a repeated request tells so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from greenlet import getcurrent

from fairlock.aws.retry import may_pass
from tests.simulation.dynamodb import Answer, DynamoDb
from tests.simulation.engine import Engine, Killed
from tests.simulation.faults import Network
from tests.simulation.judge import Judge
from tests.support.faulty_table import REQUESTS

AWS: Final = "https://dynamodb.us-east-1.amazonaws.com"
_CONNECT_SECONDS: Final = 1.0
_READ_SECONDS: Final = 1.5
_MOST_SENDINGS: Final = 3
_QUOTA: Final = 500
_RETRY_COST: Final = 5
_TIMEOUT_COST: Final = 10
_REPEATED: Final = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "TransactionInProgressException",
    }
)
Hit = Callable[[Mapping[str, Any]], object]


class _Sending(NamedTuple):
    """A request on the wire; no one waits for the answer if `waits` is None."""

    name: str
    request: Mapping[str, Any]
    task: Any
    waits: int | None
    back: float


class Wire:
    """The way of requests to DynamoDB and back.

    Attributes:
        hit: called with each request that a fault has delayed or spoilt, by the process that sent
            it.
        stalled: requests whose process stands still before it sends them.
        on_the_way: requests that are to arrive, or to be answered.
        served: requests that were, by their names.
    """

    def __init__(self, engine: Engine, database: DynamoDb, network: Network, hit: Hit) -> None:
        self.engine, self.database, self.network, self.hit = engine, database, network, hit
        self.stalled = self.on_the_way = 0
        self.served = Counter[str]()

    def send(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as DynamoDB answers
        """Sends once, and waits for the answer.

        Raises:
            ClientError: DynamoDB's refusal, or its 500.
            ConnectTimeoutError, ReadTimeoutError: no answer.
        """
        engine = self.engine
        if self.database.is_out():
            engine.faults["no answer in an outage"] += 1
            engine.wait(_CONNECT_SECONDS)
            raise ConnectTimeoutError(endpoint_url=AWS)
        task = getcurrent()
        is_sure = self._launch(name, request, task)
        answer = engine.wait(None if is_sure else _READ_SECONDS)
        if answer is None:
            raise ReadTimeoutError(endpoint_url=AWS)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def _launch(self, name: str, request: Mapping[str, Any], task: Any) -> bool:  # noqa: ANN401 - a task
        """Puts a request on the wire; whether its answer is sure to come in time."""
        engine, network = self.engine, self.network
        there, back = self.database.latency(), self.database.latency()
        chance = engine.random.random()
        waits: int | None = task.waits + 1
        if chance < network.lost_requests:
            engine.faults["lost requests"] += 1
            return False
        chance -= network.lost_requests
        is_lost = chance < network.lost_replies
        is_late = chance < network.lost_replies + network.late_replies + network.late_requests
        if is_lost:
            engine.faults["lost replies"] += 1
            waits = None
        elif is_late:
            engine.faults["late ones"] += 1
            late = engine.random.random() * network.late_seconds
            if chance < network.lost_replies + network.late_replies:
                back += late
            else:
                there += late
            self.hit(request)
        sending = _Sending(name, request, task, waits, back)
        self._arrives(there, sending)
        if network.copies and engine.random.random() < network.copies:
            engine.faults["late copies"] += 1
            late = there + engine.random.random() * network.late_seconds
            self._arrives(late, sending._replace(waits=None))
        return not is_late

    def _arrives(self, after: float, sending: _Sending) -> None:
        self.on_the_way += 1
        reply = partial(self._reply, sending)
        self.engine.after(after, self.database.serve, sending.name, sending.request, reply)

    def _reply(self, sending: _Sending, answer: Answer, settles: float) -> None:
        self.on_the_way -= 1
        self.served[sending.name] += 1
        if sending.waits is not None:
            after = settles + sending.back
            self.engine.after(after, self.engine.resume, sending.task, sending.waits, answer)

    def require_accounts(self, judge: Judge, sent: int) -> None:
        """Every request that was sent was served or lost, and DynamoDB has charged the same."""
        promise, faults = "every request accounted", self.engine.faults
        charged = self.database.requests
        for name in sorted({*self.served, *charged}):
            what = f"{name}: served {self.served[name]}, charged {charged[name]}"
            judge.require(promise, self.served[name] == charged[name], what)
        unsent = self.stalled + faults["no answer in an outage"] + faults["lost requests"]
        arriving = sent - unsent + faults["late copies"]
        told = self.served.total() + self.on_the_way
        judge.require(promise, arriving == told, f"{arriving} sent, {told} on the wire")


class Sdk:
    """A client of boto3 for DynamoDB, as one process has it.

    Attributes:
        sent: how many requests it has sent.
        before: called before it sends one.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._quota = _QUOTA
        self.sent = 0
        self.before: Hit = lambda _request: None
        self.meta = SimpleNamespace(region_name="us-east-1", endpoint_url=AWS)
        self.exceptions = wire.database.table.exceptions

    def close(self) -> None:
        """Nothing is open."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as boto3 has it
        if name not in REQUESTS:
            raise AttributeError(name)
        call = lambda **request: self._call(name, request)  # noqa: E731 - it is kept below
        setattr(self, name, call)
        return call

    def _call(self, name: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        paid = 0
        for repeats in range(_MOST_SENDINGS):
            if not getcurrent().process.is_alive or self._wire.engine.has_ended:
                raise Killed  # Code that unwinds, of a process that is no more, sends nothing.
            self.sent += 1
            self.before(request)
            try:
                answer = self._wire.send(name, request)
            except (ConnectTimeoutError, ReadTimeoutError):
                self._wire.hit(request)
                paid = self._pay(_TIMEOUT_COST, repeats)
                if not paid:
                    raise
            except ClientError as error:
                error.response["ResponseMetadata"]["RetryAttempts"] = repeats
                if may_pass(error):
                    self._wire.hit(request)
                is_repeated = error.response["Error"]["Code"] in _REPEATED
                paid = self._pay(_RETRY_COST, repeats) if is_repeated else 0
                if not paid:
                    raise
            else:
                answer["ResponseMetadata"]["RetryAttempts"] = repeats
                self._quota = min(_QUOTA, self._quota + max(paid, 1))
                return answer
            self._wire.engine.wait(self._wire.engine.random.random() * 2.0**repeats)
        raise AssertionError

    def _pay(self, cost: int, repeats: int) -> int:
        """Takes tokens for one more sending; none if there may be no more."""
        if repeats + 1 == _MOST_SENDINGS or self._quota < cost:
            return 0
        self._quota -= cost
        return cost
