"""The aiobotocore clients of an `AsyncLockClient`: made when first needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from typing import Any, Final

from aiobotocore.client import AioBaseClient
from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession, get_session
from botocore.client import BaseClient

from fairlock.aio.bridge import BridgedClient, BridgedMutex, wait_for
from fairlock.client.connection import Connection, is_of_another_service
from fairlock.dynamodb.client_config import CLIENT_CONFIG
from fairlock.errors import InvalidRequest

_DESCRIPTIONS: Final = "data_loader"


class AsyncConnection(Connection):
    """DynamoDB, and Step Functions if a workflow is met in a queue, for code on the bridge."""

    def __init__(
        self,
        *,
        session: AioSession | None,
        dynamodb: Any,  # noqa: ANN401 - aiobotocore makes its classes at run time
        stepfunctions: Any,  # noqa: ANN401 - same
        most_at_once: int,
    ) -> None:
        _check_session(session)
        _check_client("client", dynamodb, service="dynamodb")
        _check_client("stepfunctions", stepfunctions, service="stepfunctions")
        super().__init__(
            session=None,
            dynamodb=_bridged(dynamodb),
            stepfunctions=_bridged(stepfunctions),
            most_at_once=most_at_once,
        )
        self._aio_session = session
        self._mutex = BridgedMutex()
        self._open = AsyncExitStack()

    async def aclose(self) -> None:
        """Closes the clients made here."""
        self._made.clear()
        await self._open.aclose()

    def _one_at_a_time(self) -> BridgedMutex:
        return self._mutex

    def _make(self, service: str) -> Any:  # noqa: ANN401 - one client or the other
        session = self._aio_session or _default_session()
        config = AioConfig().merge(self._config)
        context = session.create_client(service, config=config, **self._region())
        return BridgedClient(wait_for(self._open.enter_async_context(context)))


@asynccontextmanager
async def temporary_client(
    service: str, session: AioSession | None
) -> AsyncIterator[Callable[[], BridgedClient]]:
    """Makes a client on the bridge, at most for the length of the block.

    Raises:
        InvalidRequest: the session is none of aiobotocore's.
    """
    _check_session(session)
    async with AsyncExitStack() as opened:
        context = (session or _default_session()).create_client
        config = AioConfig().merge(CLIENT_CONFIG)
        yield lambda: BridgedClient(
            wait_for(opened.enter_async_context(context(service, config=config)))
        )


def _check_session(session: object) -> None:
    if session is not None and not callable(getattr(session, "create_client", None)):
        rule = "must be a session of aiobotocore, as aiobotocore.session.get_session() makes it"
        raise InvalidRequest(field="session", rule=rule, value=session)


def _check_client(field: str, client: object, *, service: str) -> None:
    """Refuses a client of another service, or of boto3, whose answers cannot be awaited."""
    is_sync = isinstance(client, BaseClient) and not isinstance(client, AioBaseClient)
    if is_sync or is_of_another_service(client, service):
        rule = f"must be a client of aiobotocore for {service}; LockClient takes one of boto3"
        raise InvalidRequest(field=field, rule=rule, value=client)


def _default_session() -> AioSession:
    """A new session, because its credentials may be bound to an event loop.

    It shares the descriptions of AWS's services, which take long to read.
    """
    session = get_session()
    session.register_component(_DESCRIPTIONS, _descriptions())
    return session


@cache
def _descriptions() -> Any:  # noqa: ANN401 - a loader of botocore's
    return get_session().get_component(_DESCRIPTIONS)


def _bridged(client: Any) -> Any:  # noqa: ANN401 - one client or the other
    return None if client is None else BridgedClient(client)
