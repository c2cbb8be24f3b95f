"""What functions with `@locked` use in a test if they name no client of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from leasehold.decorator.default_clients import ClientKind
from leasehold.testing.lock_client import FakeLockClient

if TYPE_CHECKING:
    from leasehold.testing.async_lock_client import FakeAsyncLockClient

_MODULE: Final = import_module("leasehold.decorator.locked")
"""Its package exports the function of the same name."""


@contextmanager
def used_by_locked_functions(client: FakeLockClient | FakeAsyncLockClient) -> Iterator[None]:
    """Within the block, `@locked` functions without a client use the table of this one.

    Each kind of call gets a client with the settings that it would have in production, so that a
    Lambda handler sends no heartbeats, for instance. LEASEHOLD_TABLE_NAME need not be set.

    Args:
        client: a `FakeLockClient` for functions, a `FakeAsyncLockClient` for coroutine functions.
    """
    made: dict[ClientKind, Any] = {}

    def client_for(*, heartbeats: bool, watches: bool) -> Any:  # noqa: ANN401 - of either kind
        kind = ClientKind("fake-locks", heartbeats, watches)
        if kind not in made:
            made[kind] = client.another("locked function", **kind.settings())
        return made[kind]

    async def async_client_for(*, heartbeats: bool, watches: bool) -> Any:  # noqa: ANN401 - same
        return client_for(heartbeats=heartbeats, watches=watches)

    is_sync = isinstance(client, FakeLockClient)
    name = "default_client" if is_sync else "default_async_client"
    with mock.patch.object(_MODULE, name, client_for if is_sync else async_client_for):
        yield
