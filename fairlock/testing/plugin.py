"""Fixtures for pytest: `pytest_plugins = ["fairlock.testing.plugin"]` in your top conftest.py.

Nothing is imported before a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fairlock.testing.fake_async_client import FakeAsyncLockClient
    from fairlock.testing.fake_client import FakeLockClient
    from fairlock.testing.manual_clock import ManualClock

_TABLE_NAME = "fairlock-test-locks"


@pytest.fixture
def fairlock_clock() -> ManualClock:
    """The clock of `fairlock_locks`: time passes when the test says so, or when code waits."""
    from fairlock.testing.manual_clock import ManualClock  # noqa: PLC0415 - costs nothing if not used

    return ManualClock()


@pytest.fixture
def fairlock_locks(fairlock_clock: ManualClock) -> Iterator[FakeLockClient]:
    """A `LockClient` without AWS; `@locked` functions without a client use its table, too."""
    from fairlock.testing import FakeLockClient, used_by_locked_functions  # noqa: PLC0415 - same

    with FakeLockClient(clock=fairlock_clock) as locks, used_by_locked_functions(locks):
        yield locks


@pytest.fixture
def fairlock_async_locks() -> Iterator[FakeAsyncLockClient]:
    """An `AsyncLockClient` without AWS; coroutine functions with `@locked` use its table, too."""
    from fairlock.testing import FakeAsyncLockClient, used_by_locked_functions  # noqa: PLC0415 - same

    locks = FakeAsyncLockClient()
    with used_by_locked_functions(locks):
        yield locks


@pytest.fixture
def fairlock_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a lock table in moto, which replaces all of AWS in this process. Time is real.

    A `LockClient` of that name finds it, and `@locked` functions do. Needs the extra `testing`.
    """
    try:
        from moto import mock_aws  # noqa: PLC0415 - an optional part
    except ImportError as missing:
        from fairlock.text import extra_missing  # noqa: PLC0415 - costs nothing if not used

        message = extra_missing("the fixture fairlock_table needs moto", extra="testing")
        raise ImportError(message, name=missing.name) from missing
    import boto3  # noqa: PLC0415 - costs nothing if not used

    from fairlock.client.create_table import create_table  # noqa: PLC0415 - same
    from fairlock.names import TABLE_NAME_VARIABLE  # noqa: PLC0415 - same

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv(TABLE_NAME_VARIABLE, _TABLE_NAME)
    with mock_aws():
        client = boto3.client("dynamodb")
        create_table(client, _TABLE_NAME)
        yield _TABLE_NAME
        client.close()
