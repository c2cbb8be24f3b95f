"""The wheel beside what it requires does the usual jobs, without the CDK and without Node.

All in one process, against a DynamoDB of the embedded AWS.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.localaws import LocalAws
from tests.packaging.clean_environment import FOR_THE_COMMAND, REQUIRED, home_of, run

FOR_ASYNCIO = (
    *("aiobotocore", "greenlet", "aiohttp", "aiohappyeyeballs", "aiosignal", "aioitertools"),
    *("attrs", "frozenlist", "idna", "multidict", "propcache", "wrapt", "yarl"),
)
JOBS = """
import asyncio, contextlib, io, json, os, sys
os.environ.clear()
os.environ.update(ENVIRONMENT)
import boto3, botocore.session
told = {}

def command(*words):
    from fairlock.cli import main
    sys.argv = ["fairlock", *words]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main()
        except SystemExit as ended:
            return [ended.code, output.getvalue()]

told["create-table"] = command("create-table", "locks-of-jobs")

from fairlock import AsyncLockClient, LockClient, LockLost, locked, optimistic
with LockClient("locks-of-jobs", owner_name="client") as locks:
    with contextlib.suppress(LockLost), locks.hold("a"):
        told["ls"] = command("ls", "--json")
        told["show"] = command("show", "a")
        told["release"] = command("release", "a", "--force", "--yes")
    told["run"] = command("run", "a", "--", sys.executable, "-c", "raise SystemExit(7)")

@locked("b")
def work(lock):
    return lock.name

told["decorator"] = work()

async def hold():
    async with AsyncLockClient("locks-of-jobs") as locks, locks.hold("c") as lock:
        return lock.name

told["async"] = asyncio.run(hold())

accounts = boto3.resource("dynamodb").create_table(
    TableName="accounts", BillingMode="PAY_PER_REQUEST",
    KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
)
changed = optimistic.update(accounts, {"id": "7"}, lambda _: {"id": "7", "n": 1})
told["optimistic"] = int(changed["n"])
told["asl"] = command("asl", "--task", TASK, "--lock-name", "d")
told["loaded"] = sorted({name.partition(".")[0] for name in sys.modules} & {
    "aws_cdk", "constructs", "jsii", "aws_lambda_powertools", "moto", "pytest"
})
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(installed: Path, aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - JSON
    home = home_of((*REQUIRED, *FOR_THE_COMMAND, *FOR_ASYNCIO), tmp_path_factory.mktemp("home"))
    environment = {**aws.environment, "FAIRLOCK_TABLE_NAME": "locks-of-jobs", "PATH": str(home)}
    task = home / "task.json"
    task.write_text('{"Type": "Pass"}')
    script = f"ENVIRONMENT, TASK = {environment!r}, {str(task)!r}{JOBS}"
    _, answer = run(script, installed, home)
    return answer


def test_the_command_makes_a_table_shows_frees_and_holds_locks(told: Any) -> None:  # noqa: ANN401 - JSON
    assert told["create-table"][0] == 0
    [listed] = told["ls"][1].splitlines()
    assert json.loads(listed)["lock_name"] == "a"
    assert (told["show"][0], "client" in told["show"][1]) == (0, True)
    assert told["run"][0] == 7
    assert (told["release"][0], "a: released by force; free" in told["release"][1]) == (0, True)


def test_the_clients_and_the_decorator_hold_locks(told: Any) -> None:  # noqa: ANN401 - JSON
    assert (told["decorator"], told["async"]) == ("b", "c")


def test_an_item_is_updated_optimistically(told: Any) -> None:  # noqa: ANN401 - JSON
    assert told["optimistic"] == 1


def test_nothing_loads_the_cdk_and_what_needs_it_says_so(told: Any) -> None:  # noqa: ANN401 - JSON
    assert told["asl"] == [64, "fairlock: asl needs Node.js: there is no node on the path\n"]
    assert told["loaded"] == []
