"""What docs/migration.md calls of python_dynamodb_lock 0.9.1, with its names and arguments.

`tests/bench/test_bench.py` compares them with the library, where that is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar, Final

NAME: Final = "customer/7"


class DynamoDBLockError(Exception):
    ACQUIRE_TIMEOUT: ClassVar = "ACQUIRE_TIMEOUT"
    UNKNOWN: ClassVar = "UNKNOWN"

    def __init__(self, code: str = "UNKNOWN", message: str = "Unknown error") -> None:
        super().__init__(message)
        self.code = code


@dataclass
class DynamoDBLock:
    is_held: bool = True

    def release(self, best_effort: bool = True) -> None:  # noqa: FBT001, FBT002 - as it is there
        assert best_effort
        self.is_held = False


@dataclass
class DynamoDBLockClient:
    """The locks that were granted are remembered; `answer` is what the next call raises."""

    granted: ClassVar[list[DynamoDBLock]] = []
    answer: ClassVar[DynamoDBLockError | None] = None

    dynamodb_resource: object
    table_name: str = "DynamoDBLockTable"
    lease_duration: timedelta = field(default=timedelta(seconds=30))

    def acquire_lock(
        self, partition_key: str, *, retry_timeout: timedelta | None = None
    ) -> DynamoDBLock:
        assert (partition_key, retry_timeout) == (NAME, timedelta(seconds=120))
        assert self.lease_duration == timedelta(seconds=30)
        if self.answer is not None:
            raise self.answer
        self.granted.append(DynamoDBLock())
        return self.granted[-1]
