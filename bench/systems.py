"""The lock clients that are compared, with one face: sections of work under a lock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from bench.bed import dynamodb_at, lock_client, resource_at
from tests.histories.calls import Recorder
from tests.histories.checker import find_violation

SITE: Final = Path(".bench/site").resolve()
"""Where `make bench` installs what only the bench needs."""
OTHER_TABLE: Final = "other-locks"
LEASE_SECONDS: Final = 30


class System(Protocol):
    """A lock client of one process."""

    name: str

    def section(self, lock_name: str, *, wait: float) -> Any:  # noqa: ANN401 - a context manager
        """Holds the lock for a `with` block."""

    def violations(self) -> int:
        """How many histories are wrong, of those that were recorded."""

    def close(self) -> None:
        """Ends what it started."""


class Fairlock:
    """`LockClient`, as it is by default."""

    name = "Fairlock"

    def __init__(self, endpoint_url: str) -> None:
        self._client = lock_client(dynamodb_at(endpoint_url))
        self.recorder = Recorder()

    @contextmanager
    def section(self, lock_name: str, *, wait: float) -> Iterator[None]:
        """Holds the lock; every call is recorded."""
        owner, lock = self.recorder.acquire(
            self._client, lock_name, max_wait=wait, lease=LEASE_SECONDS
        )
        if lock is None:
            raise TimeoutError
        try:
            yield
        finally:
            self.recorder.release(lock, owner)

    def violations(self) -> int:
        """Of the histories of this process: complete only if no other process took part."""
        histories = self.recorder.histories.values()
        wrong = [find_violation(calls, limit=1, with_waiters=True) for calls in histories]
        return sum(each is not None for each in wrong)

    def close(self) -> None:
        """Closes the client."""
        self._client.close()


class PythonDynamoDBLock:
    """`python_dynamodb_lock`, which asks again after a fixed time."""

    def __init__(self, endpoint_url: str, *, retry: float) -> None:
        self.name = f"python_dynamodb_lock, retry {retry:g} s"
        self._retry = timedelta(seconds=retry)
        found = other_library()
        self._client = found.DynamoDBLockClient(
            resource_at(endpoint_url),
            table_name=OTHER_TABLE,
            lease_duration=timedelta(seconds=LEASE_SECONDS),
        )

    @contextmanager
    def section(self, lock_name: str, *, wait: float) -> Iterator[None]:
        """Holds the lock."""
        longest = timedelta(seconds=wait)
        try:
            lock = self._client.acquire_lock(
                lock_name, retry_period=self._retry, retry_timeout=longest
            )
        except other_library().DynamoDBLockError as error:
            raise TimeoutError from error
        with lock:
            yield

    def violations(self) -> int:
        """Nothing is recorded: it has no fencing tokens."""
        return 0

    def close(self) -> None:
        """Closes the client."""
        self._client.close()


def other_library() -> Any:  # noqa: ANN401 - it has no types
    """The module `python_dynamodb_lock`.

    Raises:
        ModuleNotFoundError: it is installed by `make bench` only.
    """
    if str(SITE) not in sys.path:
        sys.path.append(str(SITE))
    from python_dynamodb_lock import python_dynamodb_lock  # noqa: PLC0415 - not always there

    return python_dynamodb_lock


def prepare_other(endpoint_url: str) -> None:
    """Makes the table of the other library."""
    client = dynamodb_at(endpoint_url)
    other_library().DynamoDBLockClient.create_dynamodb_table(client, table_name=OTHER_TABLE)
