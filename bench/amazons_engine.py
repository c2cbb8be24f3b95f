"""DynamoDB Local of January 2020, Amazon's own engine, with a lock table.

It is written in Java, and evaluates an expression much faster than the embedded AWS. `make bench`
installs it; without Java 17 to 23 it does not run, and nothing is measured at it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from bench.bed import TABLE
from second_engine.dynamodb_local import dynamodb_local
from second_engine.places import DYNAMODB_LOCAL
from tests.support import create_lock_table


@contextmanager
def amazons_engine() -> Iterator[str | None]:
    """Runs it in a process of its own; yields its URL, or None if it is not there."""
    if shutil.which("java") is None or not DYNAMODB_LOCAL.is_dir():
        yield None
        return
    with dynamodb_local() as client:
        create_lock_table(client, TABLE)
        yield client.meta.endpoint_url
