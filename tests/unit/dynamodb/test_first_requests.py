"""The first requests of a client, by several threads: boto3 may make its classes of errors twice.

`client.exceptions` is made when it is first needed, without a lock. So a thread may be raised a
class that another thread's `client.exceptions` does not have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.protocol.outcomes import Grant, Queued, Refusal, Released
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release, store_over


class Twice(ClientError):  # noqa: N818 - as boto3 names its own
    """An error of a class that no one knows by name."""


@dataclass
class OtherClasses:
    """A client that raises each error as another class, with the same code and content."""

    inner: MemoryTable = field(default_factory=MemoryTable)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        attribute = getattr(self.inner, name)
        if not callable(attribute) or name == "exceptions":
            return attribute

        def call(**request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
            try:
                return attribute(**request)
            except ClientError as error:
                raise Twice(error.response, error.operation_name) from None

        return call


@pytest.mark.parametrize("client", [MemoryTable(), OtherClasses()], ids=["usual", "twice"])
def test_a_false_condition_is_an_answer_whatever_the_class_of_its_error(client: Any) -> None:  # noqa: ANN401 - a DynamoDB client
    store = store_over(client, FakeClock())
    assert isinstance(store.acquire(acquire("anna")), Grant)
    assert isinstance(store.acquire(acquire("ben")), Refusal)
    waiting = store.acquire(acquire("carl", waits=True))
    assert isinstance(waiting, Queued)
    assert isinstance(store.release(release("anna")), Released)
    assert isinstance(store.release(release("carl", ticket=waiting.entered_at_ms)), Released)
