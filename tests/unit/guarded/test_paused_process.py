"""A real process that is stopped past its lease, replaced, and goes on: what it then writes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fairlock import LockClient
from testbed.localaws import LocalAws
from tests.support import TABLE
from tests.unit.guarded.bench import LEDGER
from tests.unit.guarded.programs.paused import WRITES_OF_A_KIND

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ROOT = Path(__file__).resolve().parents[3]
PAUSES = 2
TAKEOVER_SECONDS = 30
MOST_SECONDS = 120
GUARDED = (
    "the lock's",
    "the lock's, with release",
    "past the lock's own clock",
    "the same, with release",
    "own transaction",
    "fenced",
)


@contextmanager
def holding(aws: LocalAws, lock_name: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lock."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.guarded.programs.paused", TABLE, LEDGER, lock_name],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **aws.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    overdue = threading.Timer(MOST_SECONDS, process.kill)  # Else a read of its pipe has no bound.
    overdue.start()
    try:
        assert line(process.stdout) == "holding\n"
        yield process
    finally:
        overdue.cancel()
        process.kill()
        process.communicate(timeout=20)


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def accepted_after_a_pause(aws: LocalAws, locks: LockClient, lock_name: str) -> dict[str, int]:
    """Pauses a holder until another one has taken over and written; then lets it write."""
    with holding(aws, lock_name) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            with locks.hold(lock_name, lease=60, max_wait=TAKEOVER_SECONDS) as successor:
                write_fenced(aws, lock_name, successor.fencing_token)
                process.send_signal(signal.SIGCONT)
                output, _ = process.communicate("\n", timeout=60)
        finally:
            process.send_signal(signal.SIGCONT)
        accepted: dict[str, int] = json.loads(output)
        return accepted


def write_fenced(aws: LocalAws, lock_name: str, token: int) -> None:
    item = {"account": {"S": f"{lock_name}/fenced"}, "fencing_token": {"N": str(token)}}
    aws.client("dynamodb").put_item(TableName=LEDGER, Item=item)


def test_of_the_guarded_writes_of_a_paused_process_none_is_accepted_and_of_the_others_all(
    aws: LocalAws, dynamodb: DynamoDBClient
) -> None:
    names = [f"paused-{number}" for number in range(PAUSES)]
    with LockClient(TABLE, client=dynamodb) as locks, ThreadPoolExecutor(PAUSES) as pool:
        runs = list(pool.map(lambda name: accepted_after_a_pause(aws, locks, name), names))
    accepted: Counter[str] = Counter()
    for run in runs:
        accepted.update(run)
    assert accepted == {
        **dict.fromkeys(GUARDED, 0),
        "unguarded": PAUSES * WRITES_OF_A_KIND,  # the negative control
    }
    assert len(GUARDED) * PAUSES * WRITES_OF_A_KIND >= 100
    written = dynamodb.scan(TableName=LEDGER, ConsistentRead=True)["Items"]
    kinds = Counter(item["account"]["S"].split("/")[1] for item in written)
    assert kinds == {"unguarded": PAUSES * WRITES_OF_A_KIND, "fenced": PAUSES}
