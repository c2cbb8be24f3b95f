"""Many locks in one table: what one more operation costs, and what it takes to list them all."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from bench.bed import TABLE, Bed, Figures, lock_client, spread
from bench.goals import Goal
from fairlock import create_table
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import acquire, release, store_over

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

SIZES: Final = (1_000, 100_000)
_TABLE_OF_FEW: Final = "few-locks"
_BATCH: Final = 25
_WRITERS: Final = 4
_LIST: Final = """
import resource, sys, time
from pathlib import Path
from bench.bed import dynamodb_at, lock_client
client = lock_client(dynamodb_at(sys.argv[1]))
def mib():
    status = Path("/proc/self/status")
    if status.exists():  # The other figure includes the process that started this one.
        lines = status.read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
client.describe("grown/0")
before, began = mib(), time.monotonic()
number = sum(1 for _ in client.list("grown/"))
sys.stdout.write(f"{number} {before:.0f} {mib():.0f} {time.monotonic() - began:.1f}")
"""


def measure(bed: Bed) -> Figures:
    """Milliseconds of acquire and release beside so many other locks; memory of a full list.

    By turns in two tables, because a machine is not equally fast all the time.
    """
    dynamodb = bed.dynamodb()
    few, many = (100, 300) if bed.quick else SIZES
    create_table(dynamodb, _TABLE_OF_FEW)
    clients = {}
    for table, size in ((_TABLE_OF_FEW, few), (TABLE, many)):
        _fill(dynamodb, table, size)
        clients[size] = lock_client(dynamodb, table=table)
    spans: dict[int, list[float]] = {size: [] for size in clients}
    for number in range(10 if bed.quick else 300):
        for size, client in clients.items():
            began = time.perf_counter()
            client.acquire(f"beside/{number % 10}").release()
            spans[size].append((time.perf_counter() - began) * 1000)
    for client in clients.values():
        client.close()
    figures: Figures = {f"{size:,}": spread(each) for size, each in spans.items()}
    listed, before, peak, seconds = _list(bed).split()
    figures["list"] = {
        "locks": int(listed),
        "mib_before": int(before),
        "mib_peak": int(peak),
        "seconds": float(seconds),
    }
    return figures


def goals(figures: Figures) -> list[Goal]:
    """Other locks cost nothing, and a list does not hold them all at a time."""
    few, many = (f["median"] for size, f in figures.items() if size != "list")
    listed = figures["list"]
    return [
        Goal.at_most(
            "acquire and release beside 100,000 locks, over 1,000", round(many / few, 2), 1.15
        ),
        Goal.at_most("a list of 100,000 locks", round(listed["mib_peak"] * 1.048576), 200, " MB"),
    ]


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    listed = figures["list"]
    return [
        "## Many locks in a table",
        "",
        (
            f"Acquire and release take {_named(figures)}. To list all {listed['locks']:,} takes "
            f"{listed['seconds']} s and {listed['mib_peak'] - listed['mib_before']} MiB."
        ),
    ]


def _named(figures: Figures) -> str:
    sizes = (each for each in figures.items() if each[0] != "list")
    return ", ".join(f"{f['median']} ms beside {size} others" for size, f in sizes)


def _fill(dynamodb: DynamoDBClient, table_name: str, size: int) -> None:
    """Adds items of locks that no one holds, as they are after a release."""
    table = MemoryTable()
    store = store_over(table, ManualClock())
    store.acquire(acquire("anna"))
    store.release(release("anna"))
    [item] = table.items.values()

    def write(first: int) -> None:
        numbers = range(first, min(first + _BATCH, size))
        puts = [{"PutRequest": {"Item": {**item, "pk": {"S": f"LOCK#grown/{n}"}}}} for n in numbers]
        dynamodb.batch_write_item(RequestItems={table_name: puts})  # type: ignore[dict-item]  # as they were stored

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write, range(0, size, _BATCH)))


def _list(bed: Bed) -> str:
    """In a process of its own: how many locks, MiB before and at most, seconds."""
    done = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", _LIST, bed.endpoint_url],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout
