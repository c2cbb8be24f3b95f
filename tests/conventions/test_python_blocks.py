"""The Python examples of the documents run: over a lock table in memory, without AWS."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import boto3
import pytest

import fairlock
from fairlock import locked
from fairlock.errors import FairlockError
from fairlock.testing import FakeAsyncLockClient, FakeLockClient
from fairlock.testing.fake_client import used_by_locked_functions
from fairlock.testing.manual_clock import run_in_virtual_time
from testbed.localaws import LocalAws
from tests.support.checkout import Block, blocks, python_world

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.service_resource import Table

TABLE = "Fairlock-LocksTable…"
STACK = "Fairlock"
LEFT_OUT = re.compile(r"(?<=[=\s])…(?=[,)\]])")
"""What an example leaves to the reader, outside of texts."""
NAMES = ("customer/1234", "nightly-report")


class Written:
    """Replaces a function of the reader's: remembers what it was called with."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def __call__(self, *_: Any, fencing_token: int) -> None:  # noqa: ANN401 - the reader's
        self.tokens.append(fencing_token)

    async def later(self, *_: Any, fencing_token: int) -> None:  # noqa: ANN401 - same
        self.tokens.append(fencing_token)


async def pages() -> AsyncIterator[str]:
    yield "page"


@pytest.fixture
def locks() -> Iterator[FakeLockClient]:
    with FakeLockClient() as client:
        yield client


@pytest.fixture
def accounts(fresh_dynamodb: DynamoDBClient) -> Table:
    """A boto3 Table with one account."""
    fresh_dynamodb.create_table(
        TableName="accounts",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account", "AttributeType": "S"}],
    )
    table = boto3.resource("dynamodb").Table("accounts")
    table.put_item(Item={"account": "anna", "balance": 100, "overdraft_limit": 0})
    return table


def names_for(locks: FakeLockClient, written: Written) -> dict[str, Any]:
    """What the examples say is the reader's, or was made by the example before."""
    held = locks.another("holder").acquire(NAMES[0])
    granted = locks.another("function").acquire("deploy/production")
    mine = locks.acquire("customer/7/other")
    return {
        "__name__": "service.search",
        "locks": locks,
        "locked": locked,
        "lock": mine,
        "found": locks.describe(held.name),
        "customer_id": "7",
        "open_invoices": lambda _customer: ["invoice"],
        "pages": ["page"],
        "charge": written,
        "deploy": written,
        "write": written,
        "answer": {"owner_id": granted.owner_id},
        "new": {"account": {"S": "anna"}},
        "owner_id": mine.owner_id,
        "fencing_token": mine.fencing_token,
        "items": [],
        "client": mock.Mock(spec=["transact_write_items"]),
        "old_client": mock.MagicMock(spec=["acquire_lock"]),
        "idempotent_function": lambda **_settings: lambda function: function,
        "store": None,
        "Receipt": dict,
        "Overdrawn": RuntimeError,
        "print": lambda *_: None,
        "export": int,
        "report": int,
        "transfer": int,
        "is_done": lambda _day: False,
        "mark_done": written,
        "send_invoices": lambda _day: None,
        "cancel": str,
        "later": lambda: None,
    }


@contextmanager
def clients_are(locks: FakeLockClient, over: FakeAsyncLockClient) -> Iterator[None]:
    """Within the block, examples get these clients, if they name the table or its stack."""

    def checked(client: Any) -> Any:  # noqa: ANN401 - either kind
        def make(table_name: str) -> Any:  # noqa: ANN401 - same
            assert table_name == TABLE
            return client

        def from_stack(stack_name: str) -> Any:  # noqa: ANN401 - same
            assert stack_name == STACK
            return client

        return mock.Mock(side_effect=make, from_stack=from_stack)

    with (
        mock.patch.object(fairlock, "LockClient", checked(locks), create=True),
        mock.patch.object(fairlock, "AsyncLockClient", checked(over), create=True),
        used_by_locked_functions(locks),
    ):
        yield


def run(block: Block, names: dict[str, Any]) -> dict[str, Any]:
    """Runs an example among these names, also one that awaits outside a function."""
    text = LEFT_OUT.sub("...", block.code)
    code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.CO_COROUTINE & code.co_flags:
        run_in_virtual_time(eval(code, names))  # noqa: S307 - the repository's own example
    else:
        exec(code, names)  # noqa: S102 - same
    return names


def held(locks: FakeLockClient) -> set[str]:
    return {each.name for each in locks.list() if each.holders}


def of(world: str) -> list[Block]:
    return [block for block in blocks("python") if python_world(block) == world]


@pytest.mark.parametrize("block", of("client"), ids=str)
def test_a_client_example_runs_and_leaves_no_lock_behind(
    block: Block, locks: FakeLockClient, request: pytest.FixtureRequest
) -> None:
    written, over = Written(), FakeAsyncLockClient(table=locks.table)
    names, observer = names_for(locks, written), locks.another("observer")
    if "async with" in block.code:
        names |= {"pages": pages, "write": written.later}
    if re.search(r"\btable\b", block.code):
        names["table"] = request.getfixturevalue("accounts")
    before = held(observer)
    if "transact_write(" in block.code:
        # The table in memory has locks only: the transaction itself is shown in tests/unit/guarded.
        lock = mock.create_autospec(fairlock.Lock, instance=True)
        hold = mock.MagicMock(**{"__enter__.return_value": lock})
        names["locks"] = mock.create_autospec(fairlock.LockClient, instance=True)
        names["locks"].hold.return_value = hold
    with clients_are(locks, over):
        run(block, names)
    if "fencing_token=lock.fencing_token" in block.code:
        assert len(written.tokens) == 1
        assert written.tokens[0] > 0
    assert held(observer) <= before


WRONG = {
    "locks.hold_on('x')": AttributeError,
    "locks.hold('x', leese=30)": FairlockError,
    "locks.acquire('x', lease=0)": FairlockError,
    "from fairlock import LockClient\nLockClient('other')": AssertionError,
    "from fairlock import LockClient\nLockClient.from_stack('Other')": AssertionError,
    "from fairlock import Rota": ImportError,
    "charge(fencing_token=loc.fencing_token)": NameError,
}


@pytest.mark.parametrize("code", WRONG)
def test_an_example_with_a_wrong_name_argument_or_table_is_found(
    code: str, locks: FakeLockClient
) -> None:
    names = names_for(locks, Written())
    with clients_are(locks, FakeAsyncLockClient()), pytest.raises(WRONG[code]):
        run(Block("none.md", 1, "python", code), names)


@pytest.mark.parametrize("block", of("durable"), ids=str)
def test_a_durable_example_calls_the_sdk_and_hold_as_they_are(block: Block) -> None:
    from aws_durable_execution_sdk_python import DurableContext  # noqa: PLC0415 - heavy
    from aws_durable_execution_sdk_python.config import Duration  # noqa: PLC0415 - same

    from fairlock import durable  # noqa: PLC0415 - same

    charged: list[int] = []
    context = mock.create_autospec(DurableContext, instance=True)
    context.step.side_effect = lambda work, name: work(name)
    hold = mock.create_autospec(durable.hold, return_value=mock.MagicMock())
    hold.return_value.__enter__.return_value.fencing_token = 34
    with (
        mock.patch.object(durable, "hold", hold),
        mock.patch("aws_durable_execution_sdk_python.durable_execution", lambda function: function),
    ):
        names = run(
            block,
            {
                "Duration": Duration,
                "durable_execution": lambda function: function,
                "draw_up": lambda event: event,
                "charge": lambda _what, token: charged.append(token),
            },
        )
        names["handler"]({"id": "7"}, context)
    assert charged == [34]
    assert hold.call_args.args == (context, "customer/7")


@pytest.mark.parametrize("block", of("embedded"), ids=str)
def test_an_example_of_the_embedded_aws_calls_it_as_it_is(block: Block) -> None:
    aws = mock.create_autospec(LocalAws)
    inside = aws.return_value.__enter__.return_value = mock.create_autospec(LocalAws, instance=True)
    inside.deploy.return_value = {"Fairlock": {"AcquireFunctionName": "acquire"}}
    inside.environment = {}
    ran = mock.create_autospec(subprocess.run)
    with mock.patch("testbed.localaws.LocalAws", aws), mock.patch("subprocess.run", ran):
        run(block, {"os": os, "subprocess": subprocess, "print": lambda *_: None})
    assert inside.deploy.called


@pytest.mark.parametrize("block", of("before"), ids=str)
def test_an_example_of_another_library_is_python(block: Block) -> None:
    assert ast.parse(block.code).body
