"""How a client reaches its lock table: by AWS clients, and a name.

The AWS clients of a `LockClient` are made when they are first needed, and again in a forked child.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fairlock.aws.executions import DurableFunctions, StepFunctions, WorkflowEngines
from fairlock.aws.lock_table import LockTable
from fairlock.aws.retry import (
    DYNAMODB_CLIENT,
    OWN_REQUESTS_CONFIG,
    RetryBudget,
    error_code,
    may_pass,
    misconfigured,
    misconfigured_call,
)
from fairlock.backoff import Random
from fairlock.client.arguments import ClientSettings
from fairlock.client.local_waiters import LocalWaiters
from fairlock.client.reporting import LockEvents, log_event
from fairlock.clock import AwsClock
from fairlock.errors import (
    ClientUnusable,
    InvalidRequest,
    LockStoreUnavailable,
)
from fairlock.names import TABLE_NAME_VARIABLE, stack_parameter
from fairlock.store.context import LockContext
from fairlock.store.turns import KnownPaces
from fairlock.wire import rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient


_SPARE_CONNECTIONS: Final = 96
"""For acquires and releases beside the heartbeats. A connection is opened when it is needed; a
thread beyond these opens one for each request, and urllib3 logs a warning."""

_INHERITED: Final = (
    # Its sockets are the parent's too. It could not even be closed: a thread that the child does
    # not have may have held its locks at the fork.
    "this LockClient was given an AWS client before the process was forked; make a LockClient in "
    "the child, or give it a session instead"
)

_BOTO3: Final = {
    "session": "must be a boto3 session, as boto3.Session() makes it",
    "client": DYNAMODB_CLIENT.sentence,
    "stepfunctions": 'must be a client, as boto3.client("stepfunctions") makes it',
}

_making: threading.Lock = threading.Lock()
"""A session makes one client at a time, and sessions may be shared."""


def is_of_another_service(client: object, service: str) -> bool:
    """Whether this is a client that names another service; a test double may name none."""
    if not isinstance(client, BaseClient):
        return False
    model = getattr(getattr(client, "meta", None), "service_model", None)
    name = getattr(model, "service_name", None)
    is_text = issubclass(type(name), str)  # An autospec of a string is an instance of str, too.
    return is_text and name != service


class Connection:
    """DynamoDB; Step Functions or Lambda if an execution of theirs is met in a queue.

    Clients that are given are used as they are; the others are made from the session, or boto3's.
    """

    def __init__(
        self,
        *,
        session: boto3.Session | None,
        dynamodb: DynamoDBClient | None = None,
        stepfunctions: SFNClient | None = None,
        most_at_once: int = 1,
    ) -> None:
        self.check("session", session, has="client")
        self.check("client", dynamodb, has="exceptions", service="dynamodb")
        self.check("stepfunctions", stepfunctions, has="exceptions", service="stepfunctions")
        self._session = session
        self._given = {"dynamodb": dynamodb, "stepfunctions": stepfunctions}
        self._made: dict[str, Any] = {}
        self._known_account: str | None = None
        self._process = os.getpid()
        # A guarded write's items are checked all the same: `fairlock/guarded/guarded_table.py`.
        most_connections = Config(max_pool_connections=most_at_once + _SPARE_CONNECTIONS)
        self._config = OWN_REQUESTS_CONFIG.merge(most_connections)
        self.workflows = WorkflowEngines(
            StepFunctions(partial(self._if_possible, "stepfunctions"), account=self._account),
            DurableFunctions(partial(self._if_possible, "lambda"), account=self._account),
        )

    def dynamodb(self) -> DynamoDBClient:
        """The client for the lock table."""
        return cast("DynamoDBClient", self.client("dynamodb"))

    def close(self) -> None:
        """Closes the connections of the clients made here. They would be opened again on use."""
        for client in self._made.values():
            client.close()

    def forget(self) -> None:
        """In a forked child: the parent's sockets must not be used, nor closed."""
        global _making  # noqa: PLW0603 - a thread of the parent may hold it at the fork
        _making = threading.Lock()
        self._made = {}

    def _if_possible(self, service: str) -> Any:  # noqa: ANN401 - one client or the other
        """The client for executions; None if there can be none, for instance without a region."""
        try:
            return self.client(service)
        except (BotoCoreError, ClientUnusable):
            return None

    def _account(self) -> str | None:
        """The account that is asked about executions; unknown for clients that were given.

        Needed only where an engine knows no such execution. STS is asked then, until it answers.
        """
        if self._given["stepfunctions"] is None and self._known_account is None:
            with suppress(BotoCoreError, ClientError):
                self._known_account = self.client("sts").get_caller_identity()["Account"]
        return self._known_account

    def client(self, service: str) -> Any:  # noqa: ANN401 - one client or the other
        """The client of a service: the one that was given, or else one that is made here once."""
        given = self._given.get(service)
        if given is not None:
            if self._process != os.getpid():
                raise ClientUnusable(_INHERITED)
            return given
        if service not in self._made:
            with self._one_at_a_time():
                if service not in self._made:
                    self._made[service] = self._make(service)
        return self._made[service]

    @staticmethod
    def check(field: str, given: object, *, has: str, service: str = "") -> None:
        """Refuses a resource of boto3, a client of aiobotocore or of another service, and so on."""
        kinds = getattr(given.__class__, "__mro__", ())  # An autospec tells what it stands for.
        is_async = any(kind.__module__ == "aiobotocore.client" for kind in kinds)
        is_other = is_of_another_service(given, service)
        if given is not None and (is_async or is_other or not hasattr(given, has)):
            of_locks = hasattr(given, "try_acquire")
            rule = _USE_ITSELF if of_locks else _BOTO3[field]
            raise InvalidRequest(field=field, rule=rule, value=given)

    def _one_at_a_time(self) -> AbstractContextManager[object]:
        return _making

    def _region(self) -> dict[str, str]:
        """The region of the table, if a client for it was given."""
        beside = self._given["dynamodb"]
        return {} if beside is None else {"region_name": beside.meta.region_name}

    def _make(self, service: str) -> Any:  # noqa: ANN401 - same
        maker: Any = self._session or boto3
        client = maker.client(service, config=self._config, **self._region())
        # A client makes the classes of its errors when it is first asked for one. Two threads that
        # asked at the same moment would get different ones, and neither catches the other's.
        _ = client.exceptions
        return client


_USE_ITSELF: Final = "must be a client of DynamoDB: this one is a client of locks, so use it itself"
_NOT_SHARED: Final = (
    "no stack of this name shares a lock service in this account and region; check all three, and "
    "that the stack calls `LockService.share`"
)
_NO_PERMISSION: Final = (
    "the caller may not read it: allow ssm:GetParameter on it, or set "
    f"{TABLE_NAME_VARIABLE} to the table's name"
)
_ADVICE: Final = {
    "ParameterNotFound": _NOT_SHARED,
    "AccessDeniedException": _NO_PERMISSION,
    "AccessDenied": _NO_PERMISSION,
}


def told_by_stack(stack_name: str, name: str, make_client: Callable[[], Any]) -> str:
    """Reads a name that a stack shares, such as that of the table; see `LockClient.from_stack`."""
    rules.require("stack_name", rules.STACK_NAME, stack_name, show_text=True)
    path = stack_parameter(stack_name, name)
    region = None
    try:
        client = make_client()
        region = client.meta.region_name
        found = client.get_parameter(Name=path)
    except (BotoCoreError, ClientError, ValueError) as error:
        if may_pass(error):
            message = (
                f"parameter {path!r}: the Parameter Store did not answer: {error}; repeat the call"
            )
            raise LockStoreUnavailable(message) from error
        place = f"parameter {path!r} in {region or 'no known region'}"
        advice = _ADVICE.get(error_code(error))
        raise misconfigured_call(error, place=place, region=region, advice=advice) from error
    return str(found["Parameter"]["Value"])


_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_OF_ALL_SECONDS: Final = 30.0
_PAUSE_SHARE: Final = 0.01
RELEASE_SECONDS: Final = 5.0
"""How long a call of unknown outcome is made again, such as a release."""
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAccess:
    """How a client, and all its locks, reach the table: each request with a deadline of its own."""

    settings: ClientSettings
    connection: Connection
    aws_clock: AwsClock
    local_waiters: LocalWaiters
    events: LockEvents
    random: Random = field(default=random.random)
    known_paces: KnownPaces = field(default_factory=KnownPaces)

    def context(self, *, deadline: float = math.inf) -> LockContext:
        """What a request needs that must be done by a reading of the monotonic clock."""
        settings = self.settings
        try:
            dynamodb = self.connection.dynamodb()
        except (BotoCoreError, ValueError) as error:
            raise misconfigured(error, table_name=settings.table_name, region=None) from error
        retry_budget = RetryBudget(deadline=deadline, clock=settings.clock, random=self.random)
        table = LockTable(
            dynamodb, settings.table_name, retry_budget=retry_budget, aws_clock=self.aws_clock
        )
        return LockContext(
            table=table,
            workflows=self.connection.workflows,
            observe=log_event,
            note_hand_off=self.local_waiters.note,
            retry_budget=retry_budget,
            random=self.random,
        )

    def repeat(
        self,
        call: Callable[[LockContext, int], _Answer],
        *,
        seconds: float = RELEASE_SECONDS,
        is_vain: Callable[[], bool] = lambda: False,
    ) -> tuple[_Answer, int]:
        """Makes a call again after each unknown outcome, until it is answered, or raises.

        Returns the answer, and how many attempts it took. The more seconds, the longer the pauses:
        callers that wait for hours must not keep a table busy that has too much to do. After each
        failure `is_vain` tells whether a further attempt can bring no answer.
        """
        clock = self.settings.clock
        context = self.context(deadline=clock.monotonic() + seconds)
        budget = RetryBudget(
            seconds=seconds,
            clock=clock,
            random=self.random,
            first_pause_seconds=_FIRST_PAUSE_SECONDS,
            longest_pause_seconds=max(
                min(seconds * _PAUSE_SHARE, _LONGEST_PAUSE_OF_ALL_SECONDS), _LONGEST_PAUSE_SECONDS
            ),
        )
        began, attempt = clock.monotonic(), 1
        while True:
            try:
                return call(context, attempt), attempt
            except LockStoreUnavailable:
                if is_vain() or budget.is_spent(since=began):
                    raise
            budget.pause(attempt - 1)
            attempt += 1
