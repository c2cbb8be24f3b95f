"""A plugin of pytest (`-p`): tests of the lock table run on the DynamoDB of `--dynamodb`.

It answers instead of the table in memory.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import localaws
from testbed.second_engine.dynamodb_local import MOST_CONNECTIONS, dynamodb_local
from tests.support import OTHER_DYNAMODB

_stack = contextlib.ExitStack()


@contextlib.contextmanager
def _ministack() -> Iterator[Any]:
    with localaws.LocalAws() as aws:
        client = aws.client("dynamodb", max_pool_connections=MOST_CONNECTIONS)
        with contextlib.closing(client):
            yield client


_ENGINES = {"ministack": _ministack, "dynamodb-local": dynamodb_local}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that names the engine."""
    parser.addoption("--dynamodb", choices=sorted(_ENGINES), required=True)


def pytest_configure(config: pytest.Config) -> None:
    """Start the engine before any test."""
    client = _stack.enter_context(_ENGINES[config.getoption("--dynamodb")]())
    config.stash[OTHER_DYNAMODB] = client


def pytest_unconfigure() -> None:
    """End it after the last one."""
    _stack.close()
