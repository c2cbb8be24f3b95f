"""One table that can fail: what stands between the code and DynamoDB, and does as a test plans.

    FaultyTable(client, lose(2))                        the reply to the second write gets lost
    FaultyTable(client, fault(client_error("…")))       every write fails, and is not done
    FaultyTable(client, meanwhile(3, others_acquire))   others act before the third request
    FaultyTable(client, repeat())                       botocore sends each write twice
    FaultyTable(client, delay(6, clock, of=READS))      each read takes 6 s
    FaultyTable(client, kill(2, is_done=True))          the process dies when the second is done
    FaultyTable(client, show(note))                     a test sees each request, and may change it
    FaultyTable(client, Fault(tells=lambda _: {}))      no answer tells anything
    table.will(down())                                  from now on no request reaches it
    table.will(mute())                                  from now on it does not answer
    table.will()                                        all is well again

Requests are counted from 1, each fault counts those of its own kind from when it was planned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from fairlock.testing import ManualClock

ENDPOINT: Final = "https://dynamodb.us-east-1.amazonaws.com"
WRITES: Final = ("update_item", "transact_write_items", "put_item", "delete_item")
THROTTLES: Final = (
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionConflictException",
)
UNKNOWNS: Final = (
    "InternalServerError",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "TransactionInProgressException",
)


def client_error(code: str, status: int = 400, *, retries: int = 2) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "as a test wants it"},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "RequestId": "r",
                "HostId": "h",
                "HTTPHeaders": {},
                "RetryAttempts": retries,
            },
        },
        "UpdateItem",
    )


def refusal(code: str) -> ClientError:
    """An answer to the first and only sending of a request."""
    return client_error(code, retries=0)


def unknown_outcomes() -> dict[str, Exception]:
    """By name, all that must become LockStoreUnavailable."""
    return {
        **{code: client_error(code) for code in THROTTLES + UNKNOWNS},
        **{f"{code} with status 500": client_error(code, 500) for code in UNKNOWNS},
        "a 500 that has no code": client_error("500", 500),
        "a 503 of a code never heard of": client_error("BrandNewFailure", 503),
        "read timeout": ReadTimeoutError(endpoint_url=ENDPOINT),
        "connect timeout": ConnectTimeoutError(endpoint_url=ENDPOINT),
        "no connection": EndpointConnectionError(endpoint_url=ENDPOINT),
        "connection closed": ConnectionClosedError(endpoint_url=ENDPOINT),
    }


def defects() -> dict[str, ClientError]:
    """By name, failures that no repetition cures."""
    codes = (
        "AccessDeniedException",
        "ResourceNotFoundException",
        "ValidationException",
        "UnrecognizedClientException",
        "ItemCollectionSizeLimitExceededException",
        "BrandNewFailure",
    )
    return {code: client_error(code) for code in codes}


def failures() -> list[Exception]:
    """Each of these, made now."""
    return [*unknown_outcomes().values(), *map(refusal, defects())]


def lost_reply() -> Exception:
    return ReadTimeoutError(endpoint_url=ENDPOINT)


TRANSACTIONS: Final = ("transact_write_items",)
READS: Final = ("get_item", "query", "scan")
REQUESTS: Final = READS + WRITES
RENEWAL: Final = "#h_revision = #mine.#h_revision + :one"
"""What the update expression of each heartbeat has."""
At = int | Collection[int]
"""Numbers of requests; none for every request."""


class Killed(BaseException):
    """The process ended here."""


def writes_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What a request writes: of a transaction several items."""
    if "TransactItems" in request:
        return [write for item in request["TransactItems"] for write in item.values()]
    return [request]


@dataclass
class Fault:
    """What happens to some requests.

    Attributes:
        of: the operations that are counted.
        at: their numbers; none for all.
        error: what their sender sees instead of the answer; None for the answer.
        is_done: whether the request is done.
        times: how often it is sent.
        before: called before it, with its name and arguments.
        after: happens after it, before its sender goes on.
        tells: what its sender is told of the answer.
        has: a text that the update expressions of those have that are counted.
    """

    of: Collection[str] = WRITES
    at: At = ()
    error: BaseException | None = None
    is_done: bool = True
    times: int = 1
    before: Callable[[str, dict[str, Any]], object] = lambda _name, _arguments: None
    after: Callable[[], object] = lambda: None
    tells: Callable[[Any], Any] = lambda answer: answer
    has: str = ""
    seen: int = 0

    def strikes(self, name: str, arguments: dict[str, Any]) -> bool:
        """Counts a request; tells whether it is one of these."""
        if name not in self.of or self.has not in arguments.get("UpdateExpression", ""):
            return False
        self.seen += 1
        at = [self.at] if isinstance(self.at, int) else self.at
        return not at or self.seen in at


def fault(
    error: BaseException,
    at: At = (),
    *,
    when: Literal["before", "after"] = "before",
    then: Callable[[], object] = lambda: None,
    of: Collection[str] = WRITES,
    has: str = "",
) -> Fault:
    """Fails writes: `before` they reach the table, or `after` they were done."""
    return Fault(of=of, at=at, error=error, is_done=when == "after", after=then, has=has)


def lose(*at: int, of: Collection[str] = WRITES) -> Fault:
    """Does writes, and loses the replies."""
    return fault(lost_reply(), at, when="after", of=of)


def mute() -> Fault:
    """Does all that is asked, and loses each reply."""
    return lose(of=REQUESTS)


def down(error: Exception | None = None) -> Fault:
    """An outage: no request reaches the table."""
    return fault(error or ConnectTimeoutError(endpoint_url=ENDPOINT), of=REQUESTS)


def meanwhile(
    at: At, action: Callable[[], object], *, of: Collection[str] = REQUESTS, has: str = ""
) -> Fault:
    """Lets others act just before a request."""
    return Fault(of=of, at=at, before=lambda _name, _arguments: action(), has=has)


def show(
    action: Callable[[str, dict[str, Any]], object], *, of: Collection[str] = REQUESTS
) -> Fault:
    """Shows the name and arguments of each request before it is sent."""
    return Fault(of=of, before=action)


def repeat(*at: int, of: Collection[str] = WRITES) -> Fault:
    """Sends writes twice, and returns the second answer: botocore's retry after a lost reply."""
    return Fault(of=of, at=at, times=2)


def delay(
    seconds: float,
    clock: ManualClock,
    at: At = (),
    *,
    of: Collection[str] = REQUESTS,
    late: bool = False,
) -> Fault:
    """Lets requests take time: before they are done, or `late` their answers."""
    if late:
        return Fault(of=of, at=at, after=lambda: clock.advance(seconds))
    return meanwhile(at, lambda: clock.advance(seconds), of=of)


def fail_some(
    share: float,
    random: Random,
    errors: Callable[[], Sequence[BaseException]] = failures,
    of: Collection[str] = REQUESTS,
) -> Fault:
    """Fails a share of the requests, each with one of these errors."""

    def fail() -> None:
        if random.random() < share:
            raise random.choice(errors())

    return meanwhile((), fail, of=of)


def kill(at: At, *, is_done: bool = False, of: Collection[str] = REQUESTS) -> Fault:
    """Ends the process at a request, before or after that is done."""
    return Fault(of=of, at=at, error=Killed(), is_done=is_done)


class Faulty:
    """Counts the requests that are sent through it, and lets them fail as planned.

    Attributes:
        calls: the name of each request, in order: the user's bill.
    """

    def __init__(self, *plan: Fault) -> None:
        self.calls: list[str] = []
        self._plan = list(plan)
        self._mutex = threading.Lock()

    @property
    def reads(self) -> int:
        """How many reads were sent."""
        return sum(name in READS for name in self.calls)

    @property
    def writes(self) -> int:
        """How many writes were sent."""
        return sum(name in WRITES for name in self.calls)

    def will(self, *faults: Fault) -> None:
        """From now on this is the plan; the next request is number 1."""
        with self._mutex:
            self._plan = list(faults)

    def end_plan(self) -> None:
        """What was to come before a request that was not sent comes now."""
        for each in self._plan:
            if isinstance(each.at, int) and each.seen < each.at:
                each.before("", {})

    def _pass_on(self, send: Callable[..., Any], name: str, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        with self._mutex:
            self.calls.append(name)
            faults = [each for each in self._plan if each.strikes(name, arguments)]
        for each in faults:
            each.before(name, arguments)
        failing = next((each for each in faults if each.error is not None), None)
        for _ in range(max((each.times for each in faults), default=1) - 1):
            with suppress(ClientError):
                send(**arguments)
        if failing is None:
            answer = send(**arguments)
            for each in faults:
                each.after()
                answer = each.tells(answer)
            return answer
        if failing.is_done:
            with suppress(ClientError):
                send(**arguments)
        failing.after()
        assert failing.error is not None
        # An error that is raised again and again would keep the frames of all its senders.
        raise failing.error.with_traceback(None)


class FaultyTable(Faulty):
    """Passes requests on to a table in memory or a client.

    Attributes:
        inner: where the requests go.
    """

    def __init__(self, inner: object, *plan: Fault) -> None:
        super().__init__(*plan)
        self.inner: Any = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        if name not in REQUESTS and not any(name in each.of for each in self._plan):
            return getattr(self.inner, name)
        return lambda **arguments: self._pass_on(getattr(self.inner, name), name, arguments)
