"""Fuzzed requests through the real handlers, over a table in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from random import Random
from typing import Any, ClassVar, Final
from unittest.mock import patch

from fairlock.clock import SystemClock
from fairlock.errors import FairlockError, InvalidRequest
from fairlock.testing.fake_table import MemoryTable
from lambdas import acquire, force_release, heartbeat, pace, reap, release, runtime, set_limit
from tests.fuzz import findings as kinds
from tests.fuzz.findings import (
    EXECUTIONS,
    LOCKS,
    MARK,
    SECRETS,
    Exceptions,
    Findings,
    hostile,
    leaks,
    shown,
)
from tests.support import LambdaContextStub
from tests.support.faulty_table import REQUESTS, FaultyTable, fail_some, refusal

_MAY_FAIL: Final = (
    *(*REQUESTS, "describe_execution", "send_task_success", "send_task_failure"),
    "change_message_visibility",
)
"""A message that SQS does not take would fail its record only, which comes again."""
_OWNERS: Final = 8
_FAULT_SHARE: Final = 0.01
_CONTEXT: Final = LambdaContextStub()
_LOGGED_ERROR: Final = re.compile(r'"exception_name": ?"(\w+)"')
_OWNER: Final = ("lock_name", "owner_id")
_OPERATOR: Final = ("lock_name", "requested_by", "reason")
_WAY: Final = ("lease_seconds", "limit", "shared", "only_newest")
_FIELDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "acquire": (
        _OWNER,
        (*_WAY, "owner_name", "data", "execution_arn", "queue", "ticket", "task_token"),
    ),
    "heartbeat": (_OWNER, ("lease_seconds",)),
    "keep alive": ((*_OWNER, "execution_arn", "task_token"), _WAY),
    "release": (_OWNER, ("ticket", "execution_arn", "queue")),
    "force release": ((*_OPERATOR, "fencing_token"), ("owner_id",)),
    "set limit": ((*_OPERATOR, "limit"), ()),
    "pace": (("pace_name", "rate", "max_wait_seconds", "reservation_id"), ("burst",)),
}
"""What a request of each function must have, and may have, of what `Requests` knows valid values.
With a task token a heartbeat keeps a workflow's lock alive."""
_OTHER_FIELDS: Final = (
    *("entered_at_ms", "waiting_since_ms", "keep_alive", "task_token", "owner_name", "limit"),
    *("ownerId", "lockname"),
)
"""Those of other requests, or of none."""


def faulty_aws(random: Random) -> FaultyTable:
    """DynamoDB, Step Functions and SQS, of which any request may fail."""
    return FaultyTable(Aws(random), fail_some(_FAULT_SHARE, random, of=_MAY_FAIL))


@dataclass
class Aws:
    """A table in memory, and what the other services answer."""

    random: Random
    table: MemoryTable = field(default_factory=MemoryTable)
    exceptions: ClassVar = Exceptions

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - an operation
        return getattr(self.table, name, partial(self._answer, name))

    def _answer(self, name: str, **_arguments: object) -> dict[str, str]:
        if name == "describe_execution":
            return {"status": self.random.choice(("RUNNING", "ABORTED", "SUCCEEDED"))}
        if name.startswith("send_task") and self.random.random() < 0.2:
            raise refusal("TaskTimedOut")
        return {}


@dataclass
class Requests:
    """Makes events: mostly valid ones, with a hostile value in one field or two."""

    random: Random
    tickets: list[int] = field(default_factory=lambda: [1])
    tokens: list[int] = field(default_factory=lambda: [1])

    def event(self, function: str) -> Any:  # noqa: ANN401 - whatever JSON is
        random = self.random
        if random.random() < 0.03:
            return hostile(random)
        needed, possible = _FIELDS[function]
        values = self._valid()
        if function == "set limit":
            values["limit"] = random.choice((0, 1, 3, None))
        given = [*needed, *(name for name in possible if random.random() < 0.3)]
        event: dict[Any, Any] = {name: values[name] for name in given}
        if random.random() < 0.5:
            fields = [*needed, *possible]
            fields += _OTHER_FIELDS if random.random() < 0.3 else ()
            for name in random.sample(fields, random.choice((1, 1, 2))):
                event[name] = hostile(random)
        if random.random() < 0.05:
            event[random.choice(SECRETS)] = "owner_id"
        if random.random() < 0.05:
            del event[random.choice(needed)]
        return event

    def reap_event(self) -> Any:  # noqa: ANN401 - same
        body: Any = {"detail": {"executionArn": self.random.choice(EXECUTIONS)}}
        if self.random.random() < 0.5:
            body["detail"]["input"] = json.dumps({"owner_id": self.random.choice(SECRETS)})
        if self.random.random() < 0.3:
            body = {"execution_arn": self.random.choice(EXECUTIONS), "redrives": 0}
            body["second_pass"] = self.random.choice((True, False))
        if self.random.random() < 0.4:
            body[self.random.choice(("detail", "execution_arn", SECRETS[0]))] = self._text()
        text = json.dumps(body) if self.random.random() < 0.8 else self._text()
        record = {"messageId": "1", "eventSource": "aws:sqs", "body": text, "receiptHandle": "r"}
        return {"Records": [{**record, "attributes": {"ApproximateReceiveCount": "1"}}]}

    def _text(self) -> str:
        return shown(hostile(self.random))

    def _valid(self) -> dict[str, Any]:
        random = self.random
        return {
            "lock_name": random.choice(LOCKS),
            "owner_id": random.choice(SECRETS[:_OWNERS]),
            "owner_name": "a host",
            "lease_seconds": random.choice((60, 3600, 43_200)),
            "limit": random.choice((1, 2, 5)),
            "data": {"secret": random.choice(SECRETS)},
            "execution_arn": random.choice(EXECUTIONS),
            "queue": True,
            "ticket": random.choice(self.tickets),
            "task_token": f"{MARK}{random.random()}",
            "shared": random.choice((True, False)),
            "only_newest": random.choice((True, 1, 2, 3)),
            "fencing_token": random.choice(self.tokens),
            "requested_by": "olga",
            "reason": "why",
            "pace_name": random.choice(LOCKS),
            "rate": random.choice(([10, 60], [1, 3600], [500, 1])),
            "burst": random.choice((1, 3)),
            "max_wait_seconds": random.choice((0, 30, 3600)),
            "reservation_id": f"reservation-{random.randrange(40):04}",
        }


def fuzz_handlers(requests: int, *, seed: int) -> Findings:
    """Sends so many requests to the functions, and judges each of them."""
    random = Random(seed)  # noqa: S311 - it is to be repeatable
    aws = faulty_aws(random)
    with _environment(aws) as output:
        run = _Run(aws, Requests(random), output)
        for number in range(requests):
            if number % 250 == 0:
                aws.inner.table = MemoryTable()
                aws.calls.clear()
            run.send(random.choice(_HANDLERS))
    return run.findings


_HANDLERS: Final[list[tuple[str, Callable[..., Any]]]] = [
    *[("acquire", acquire.handler)] * 4,
    *[("heartbeat", heartbeat.handler)] * 2,
    ("keep alive", heartbeat.handler),
    *[("release", release.handler)] * 3,
    ("reap", reap.handler),
    ("force release", force_release.handler),
    ("set limit", set_limit.handler),
    ("pace", pace.handler),
]


@dataclass
class _Run:
    aws: FaultyTable
    requests: Requests
    output: StringIO
    findings: Findings = field(default_factory=Findings)

    def send(self, function: tuple[str, Callable[..., Any]]) -> None:
        """Sends one request, and judges the answer or the error, and what was printed meanwhile."""
        name, handler = function
        is_reap = name == "reap"
        event = self.requests.reap_event() if is_reap else self.requests.event(name)
        call = f"{name} {shown(event)[:300]}"
        writes, before = self.aws.writes, dict(self.aws.inner.table.items)
        try:
            answer = handler(event, _CONTEXT)
        except Exception as error:  # noqa: BLE001 - to judge them is the purpose
            self.findings.judge_error(error, call)
            if isinstance(error, InvalidRequest) and self.aws.writes != writes:
                # Only the lock tells that a reader asks to write: by a write that it refuses.
                is_upgrade = "cannot become exclusive" in error.rule
                if not is_upgrade or _locks(self.aws.inner.table.items) != _locks(before):
                    self.findings.add(kinds.WRITES, f"{call} -> {error}")
        else:
            self._judge_answer(call, event, answer)
            has_queue = any(sort_key.startswith("WAITER") for _, sort_key in before)
            must_not_write = not has_queue and _must_not_write(event, answer)
            if must_not_write and self.aws.inner.table.items != before:
                self.findings.add(kinds.WRITES, f"{call} -> {answer}")
        printed = self.findings.judge_output(self.output, call)
        for logged in set(_LOGGED_ERROR.findall(printed)) - _typed():
            self.findings.add(kinds.UNTYPED, f"{call} -> logged {logged}: {printed}")

    def _judge_answer(self, call: str, event: Any, answer: Any) -> None:  # noqa: ANN401 - JSON
        """An answer may repeat the caller's own owner_id, and shows no one else's."""
        self.findings.outcomes[_way(answer)] += 1
        names = ("owner_id", "reservation_id")
        own = [event.get(name) for name in names] if isinstance(event, dict) else []
        others = {name: value for name, value in answer.items() if value not in own}
        if leaks(str(others)):
            self.findings.add(kinds.SHOWN, f"{call} -> {answer}")
        if isinstance(answer.get("fencing_token"), int):
            self.requests.tokens = [*self.requests.tokens[-5:], answer["fencing_token"]]
        if isinstance(answer.get("ticket"), int):
            self.requests.tickets = [*self.requests.tickets[-20:], answer["ticket"]]


def _typed(kind: type[FairlockError] = FairlockError) -> set[str]:
    return {kind.__name__}.union(*map(_typed, kind.__subclasses__()))


def _locks(items: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """The items of locks and waiters, without the claims of executions."""
    return {key: item for key, item in items.items() if key[0].startswith("LOCK#")}


def _way(answer: dict[str, Any]) -> str:
    if "limit" in answer and "acquired" not in answer:
        return "limited"
    for name in ("acquired", "renewed", "released", "kept", "reserved"):
        if name in answer:
            return f"{name} {answer.get('reason', answer[name])}"
    return "reap batches"


def _must_not_write(event: dict[str, Any], answer: dict[str, Any]) -> bool:
    """A refusal of a caller that neither waits nor has a workflow, whose claim is another item.

    (A caller that is refused serves the queue, if there is one and a permit is free.)
    """
    beside = {"execution_arn", "queue", "ticket", "task_token"}
    return answer.get("reason") in {"HELD", "NOT_HELD"} and not beside & set(event)


@contextmanager
def _environment(aws: FaultyTable) -> Iterator[StringIO]:
    """The handlers over these clients, with all that they print; nothing sleeps."""
    output, level = StringIO(), runtime.logger.log_level
    variables = {"FAIRLOCK_TABLE_NAME": "locks", "FAIRLOCK_REAP_QUEUE_URL": "queue"}
    with (
        ExitStack() as stack,
        patch.dict("os.environ", variables),
        patch.object(runtime, "_client", lambda _service: aws),
        patch.object(SystemClock, "wait", lambda _clock, _seconds: None),
        redirect_stdout(output),
    ):
        for handler in runtime.logger.handlers:
            if hasattr(handler, "stream"):
                stack.enter_context(patch.object(handler, "stream", output))
        runtime.logger.setLevel("DEBUG")
        stack.callback(runtime.logger.setLevel, level)
        yield output
