"""The act with a shared lock: Python programs read an account together, a workflow writes alone."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.demo.checks import Check
from examples.demo.durable_act import is_over
from examples.demo.facts import Execution
from examples.demo.runner import OPENING_BALANCE, DemoFailed, Runner
from fairlock import LockClient

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_stepfunctions import SFNClient

TITLE = "Readers and a writer"
ACCOUNT = "grace"
AMOUNT = 10
EARLY = 4
"""Readers that are inside when the writer comes."""
LATE = 2
"""Readers that come while it waits."""
DEADLINE_SECONDS = 120.0
_LOOK_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Read:
    """What one program has read.

    Attributes:
        is_late: whether it came while the writer waited.
        first: the balance when it got the lock.
        last: the balance just before it left.
        beside: how many read at the same time.
    """

    is_late: bool
    first: int
    last: int
    beside: int


class _Readers:
    """The programs, which leave when they are told."""

    def __init__(self, runner: Runner, locks: LockClient) -> None:
        self._runner = runner
        self._locks = locks
        self._mutex = threading.Lock()
        self.inside = 0
        self.may_leave = threading.Event()

    def read(self, *, is_late: bool) -> Read:
        with self._locks.hold(_lock(), shared=True, max_wait=DEADLINE_SECONDS):
            with self._mutex:
                self.inside += 1
            first = self._runner.account(ACCOUNT).closing
            if not self.may_leave.wait(DEADLINE_SECONDS):
                message = f"a reader of {_lock()} was not told to leave"
                raise DemoFailed(message)
            last, beside = self._runner.account(ACCOUNT).closing, self.inside
        with self._mutex:
            self.inside -= 1
        return Read(is_late=is_late, first=first, last=last, beside=beside)


def play(runner: Runner, dynamodb: "DynamoDBClient", steps: "SFNClient") -> tuple[Check, ...]:
    """Runs the act, and judges it."""
    runner.open_account(ACCOUNT)
    with (
        LockClient(runner.deployed.lock_table, client=dynamodb, stepfunctions=steps) as locks,
        ThreadPoolExecutor(EARLY + LATE) as pool,
    ):

        def waiting() -> int:
            seen = locks.describe(_lock())
            return 0 if seen is None else seen.waiters.count

        readers = _Readers(runner, locks)
        try:
            reads = [pool.submit(readers.read, is_late=False) for _ in range(EARLY)]
            _until(lambda: readers.inside == EARLY, "the readers are inside")
            charge = {"account_id": ACCOUNT, "amount": AMOUNT, "work_seconds": 1.0}
            writer = runner.start(runner.deployed.guarded_machine, f"{ACCOUNT}-1", charge)
            _until(lambda: waiting() == 1, "the writer waits")
            reads += [pool.submit(readers.read, is_late=True) for _ in range(LATE)]
            _until(lambda: waiting() == 1 + LATE, "the late readers wait")
        finally:
            readers.may_leave.set()
        (written,) = runner.watch([writer], is_over, within_seconds=DEADLINE_SECONDS)
        return judge([read.result(DEADLINE_SECONDS) for read in reads], written)


def judge(reads: Sequence[Read], written: Execution) -> tuple[Check, ...]:
    """What the act shows."""
    early = [read for read in reads if not read.is_late]
    late = [read for read in reads if read.is_late]
    seen_early, seen_late = _balances(early), _balances(late)
    most = max((read.beside for read in early), default=0)
    return (
        Check(
            claim="programs read the account together",
            passed=most == EARLY,
            evidence=f"{most} at the same time",
        ),
        Check(
            claim="the workflow writes when they have left, and no one reads meanwhile",
            passed=written.status == "SUCCEEDED" and seen_early == [OPENING_BALANCE],
            evidence=f"it {written.status.lower()}; they read {_told(seen_early)}",
        ),
        Check(
            claim="readers that came while it waited did not overtake it",
            passed=len(late) == LATE and seen_late == [OPENING_BALANCE - AMOUNT],
            evidence=f"they read {_told(seen_late)}",
        ),
    )


def _balances(reads: Sequence[Read]) -> list[int]:
    return sorted({balance for read in reads for balance in (read.first, read.last)})


def _told(balances: Sequence[int]) -> str:
    return " and ".join(map(str, balances)) or "nothing"


def _lock() -> str:
    return f"account/{ACCOUNT}"


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            message = f"waited {DEADLINE_SECONDS:.0f} s in vain until {what}"
            raise DemoFailed(message)
        time.sleep(_LOOK_AGAIN_SECONDS)
