"""DynamoDB Local of January 2020, Amazon's own engine, with a lock table.

It is written in Java, and evaluates an expression much faster than the embedded AWS. `make bench`
installs it; without Java 17 to 23 it does not start, and nothing is measured at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.bed import TABLE, bare_client_at
from testbed.second_engine.dynamodb_local import dynamodb_local
from tests.support import create_lock_table


@contextmanager
def amazons_engine() -> Iterator[str | None]:
    """Runs it in a process of its own; yields its URL, or None if it does not start."""
    with ExitStack() as stack:
        try:
            client = stack.enter_context(dynamodb_local())
        except (OSError, RuntimeError):
            url = None
        else:
            url = client.meta.endpoint_url
            # DynamoDB Local keeps apart the tables of each access key.
            create_lock_table(bare_client_at(url), TABLE)
        yield url
