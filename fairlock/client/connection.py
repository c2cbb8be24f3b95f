"""The AWS clients of a `LockClient`: made when first needed, and anew in a forked child."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, cast

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from fairlock.dynamodb.client_config import OWN_REQUESTS_CONFIG
from fairlock.errors import ClientUnusable, InvalidRequest
from fairlock.workflows.durable_functions import DurableFunctions
from fairlock.workflows.engines import WorkflowEngines
from fairlock.workflows.step_functions import StepFunctions

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
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
    "client": 'must be a client, as boto3.client("dynamodb") makes it, and no resource',
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

    Args:
        session: to make clients from; None takes boto3's default session.
        dynamodb: used as it is, if given.
        stepfunctions: same.
        most_at_once: how many heartbeats may be under way at a time.

    Raises:
        InvalidRequest: an argument is no session, or no client of the right kind.
    """

    def __init__(
        self,
        *,
        session: boto3.Session | None,
        dynamodb: DynamoDBClient | None,
        stepfunctions: SFNClient | None,
        most_at_once: int,
    ) -> None:
        self.check("session", session, has="client")
        self.check("client", dynamodb, has="exceptions", service="dynamodb")
        self.check("stepfunctions", stepfunctions, has="exceptions", service="stepfunctions")
        self._session = session
        self._given = {"dynamodb": dynamodb, "stepfunctions": stepfunctions}
        self._made: dict[str, Any] = {}
        self._process = os.getpid()
        # The items of a guarded write are checked all the same: `fairlock/guarded/item_check.py`.
        most_connections = Config(max_pool_connections=most_at_once + _SPARE_CONNECTIONS)
        self._config = OWN_REQUESTS_CONFIG.merge(most_connections)
        self.workflows = WorkflowEngines(
            StepFunctions(self._stepfunctions), DurableFunctions(self._lambda)
        )

    def dynamodb(self) -> DynamoDBClient:
        """The client for the lock table."""
        return cast("DynamoDBClient", self._client("dynamodb"))

    def close(self) -> None:
        """Closes the connections of the clients made here. They would be opened again on use."""
        for client in self._made.values():
            client.close()

    def forget(self) -> None:
        """In a forked child: the parent's sockets must not be used, nor closed."""
        global _making  # noqa: PLW0603 - a thread of the parent may hold it at the fork
        _making = threading.Lock()
        self._made = {}

    def _stepfunctions(self) -> SFNClient | None:
        """The client for workflows; None if there cannot be one, for instance without a region."""
        try:
            return cast("SFNClient", self._client("stepfunctions"))
        except (BotoCoreError, ClientUnusable):
            return None

    def _lambda(self) -> LambdaClient | None:
        """The client for durable functions; None if there cannot be one."""
        try:
            return cast("LambdaClient", self._client("lambda"))
        except (BotoCoreError, ClientUnusable):
            return None

    def _client(self, service: str) -> Any:  # noqa: ANN401 - one client or the other
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
            raise InvalidRequest(field=field, rule=_BOTO3[field], value=given)

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
