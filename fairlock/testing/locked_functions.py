"""What functions with `@locked` use in a test if they name no client of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fairlock.decorator.default_clients import ClientKind, default_clients_from
from fairlock.testing.fake_client import FakeLockClient

if TYPE_CHECKING:
    from fairlock.testing.fake_async_client import FakeAsyncLockClient

_TABLE_NAME: Final = "fake-locks"


@contextmanager
def used_by_locked_functions(client: FakeLockClient | FakeAsyncLockClient) -> Iterator[None]:
    """Within the block, `@locked` functions without a client use the table of this one.

    Each kind of call gets a client with the settings that it would have in production, so that a
    Lambda handler sends no heartbeats, for instance; coroutine functions get one per event loop,
    so that a handler may call `asyncio.run` every time. FAIRLOCK_TABLE_NAME need not be set.

    Args:
        client: a `FakeLockClient` for functions, a `FakeAsyncLockClient` for coroutine functions.
    """
    made: dict[tuple[asyncio.AbstractEventLoop | None, ClientKind], Any] = {}

    def client_in(loop: asyncio.AbstractEventLoop | None, kind: ClientKind) -> Any:  # noqa: ANN401 - of either kind
        if (loop, kind) not in made:
            made[loop, kind] = client.another("locked function", **kind.settings())
        return made[loop, kind]

    def client_for(*, heartbeats: bool) -> Any:  # noqa: ANN401 - same
        loop = asyncio.get_running_loop() if is_async else None
        return client_in(loop, ClientKind(_TABLE_NAME, heartbeats))

    is_async = not isinstance(client, FakeLockClient)
    with default_clients_from(client_for, is_async=is_async):
        yield
