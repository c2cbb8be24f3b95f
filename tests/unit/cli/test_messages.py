"""What a command says: log lines, words for a shell, and for whom it waits."""

from __future__ import annotations

import importlib
import io
import logging
import re
import sys
import threading
import time
from contextlib import nullcontext, suppress
from queue import SimpleQueue
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import NoCredentialsError

from fairlock import LockClient, LockWaitTimeout
from fairlock.aws.retry import misconfigured
from fairlock.cli import exit_codes
from fairlock.cli.exit_codes import LogLines, NotTooOften
from fairlock.errors import FairlockError
from tests.support import LOCK, Operations, acquire, release
from tests.support.faulty_table import down, lost_reply, refusal
from tests.unit.cli.conftest import Account, Run
from tests.unit.cli.fleet import until
from tests.unit.client.doubles import Table

run = importlib.import_module("fairlock.cli.run")
"""The module: the package has nothing else of that name, but the module has a function."""

TOLD = "lock 'nightly': heartbeat failed"
NO_CREDENTIALS = misconfigured(NoCredentialsError(), table_name="locks", region="eu-west-1")


def record(
    error: Exception | None = None, *, at: float = 0, message: str = TOLD
) -> logging.LogRecord:
    """As `logger.exception` makes it."""
    found = None if error is None else (type(error), error, None)
    made = logging.LogRecord("fairlock", logging.ERROR, "a.py", 1, message, None, found)
    made.created = at
    return made


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (NO_CREDENTIALS, f"fairlock: {NO_CREDENTIALS}"),
        (ZeroDivisionError("a defect"), "ZeroDivisionError: a defect"),
        (FairlockError("evil\x1b[2J"), r"fairlock: evil\x1b[2J"),
    ],
)
def test_an_error_that_is_logged_is_told_in_a_line_that_a_person_on_call_can_read(
    error: Exception, line: str
) -> None:
    """One of ours says what to do, and commands no terminal; a defect is told by its class."""
    assert LogLines().format(record(error)).splitlines() == [f"fairlock: {TOLD}", line]


def test_the_same_message_is_told_once_a_minute_and_another_or_another_error_at_once() -> None:
    let_through = NotTooOften().filter
    times = {0.0: True, 0.5: False, 59.9: False, 60.0: True, 119.9: False, 7200.0: True}
    assert {at: let_through(record(at=at)) for at in times} == times
    throttled, refused = FairlockError("throttled"), FairlockError("refused")
    errors = [let_through(record(each)) for each in (throttled, refused, throttled)]
    assert errors == [True, True, False]
    assert let_through(record(message="lock 'nightly' is lost: its lease is over"))


def test_a_message_says_what_to_write_in_a_shell_and_not_in_python(
    fairlock: Run, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.table.will(down(refusal("ResourceNotFoundException")))
    refused = fairlock("show x").err
    assert "for the table of a stack, give --stack (An error" in refused
    account.table.will()
    assert fairlock("run customer/ -- true").status == 0
    logged = "".join(LogLines().format(record) for record in caplog.records)
    assert 'pass the value: "customer/${customer_id:?}" refuses an empty one' in logged
    assert not re.search("from_stack|composite_name", refused + logged)


# The reader of a command's errors, as of a CI log, is told that it waits, and for whom.

BOUND = 30
WAITS = f"waiting for lock {LOCK!r}, for up to 60 s; "
HELD = re.escape(f"{WAITS}held by ") + r"(.*) since \S+Z; (.*)"


class Unread(io.StringIO):
    """A pipe that no one reads any more once the lock is there."""

    def write(self, text: str) -> int:
        if "acquired" in text:
            raise BrokenPipeError
        return super().write(text)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    """What is told."""
    lines = SimpleQueue[str]()
    monkeypatch.setattr(exit_codes, "say", lambda line: lines.put(str(line)))
    return lines


def told(after_seconds: float, line: str = "waiting") -> Any:  # noqa: ANN401 - a context
    end = f"lock {LOCK!r} acquired"
    return run.told_of_a_wait(
        after_seconds, end, lambda: line, monotonic=iter((0.0, 42.4)).__next__
    )


@pytest.mark.parametrize("fails", [False, True])
def test_a_long_wait_is_told_once_and_the_lock_at_its_end(
    lines: SimpleQueue[str], *, fails: bool
) -> None:
    with suppress(TimeoutError), told(0):
        assert lines.get(timeout=BOUND) == "waiting"
        if fails:
            raise TimeoutError
    assert fails or lines.get(timeout=BOUND) == f"lock {LOCK!r} acquired after 42 s"
    assert lines.empty()


@pytest.mark.parametrize(("after_seconds", "line"), [(BOUND, "waiting"), (0, "")])
def test_a_short_wait_and_one_for_no_one_are_not_told_and_no_thread_is_left(
    after_seconds: float, line: str, lines: SimpleQueue[str]
) -> None:
    before = set(threading.enumerate())
    with told(after_seconds, line):
        pass
    assert set(threading.enumerate()) <= before
    assert lines.empty()


def test_a_line_that_is_late_holds_nothing_up_and_is_not_told(lines: SimpleQueue[str]) -> None:
    """The table does not answer the reads any more, but has answered the acquire."""
    asked, may_go_on = threading.Event(), threading.Event()

    def waits() -> str:
        asked.set()
        assert may_go_on.wait(BOUND)
        return "waiting"

    before = set(threading.enumerate())
    with run.told_of_a_wait(0, "the end", waits, monotonic=time.monotonic):
        assert asked.wait(BOUND)
    [late] = set(threading.enumerate()) - before
    may_go_on.set()
    late.join(BOUND)
    assert lines.empty()


@pytest.mark.parametrize("stderr", [Unread(), None])
def test_errors_that_no_one_reads_are_no_failure(
    stderr: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with told(0):
        until(lambda: stderr is None or stderr.getvalue())


def test_the_line_names_the_holders_and_since_when_or_says_that_they_are_unknown(
    store: Operations, table: Table, lister: LockClient
) -> None:
    assert run.waits_for(lister, LOCK, seconds=60) == ""
    for name in ("anna", "berta"):
        store.acquire(acquire(name, limit=2))
    writes = table.writes
    found = re.fullmatch(HELD, run.waits_for(lister, LOCK, seconds=60))
    assert found is not None
    assert found.groups() == ("anna +1", "`fairlock show nightly-report` tells more")
    assert table.writes == writes
    table.will(down(lost_reply()))
    unknown = run.waits_for(lister, LOCK, seconds=60)
    assert unknown.startswith(f"{WAITS}who holds it is unknown: ")


@pytest.mark.parametrize(
    ("option", "asked", "seconds"),
    [
        ("--lease=90", None, 180),
        ("--lease=5", None, 120),
        ("--max-wait=7", 7, 7),
        ("--max-wait=30s", 30, 30),
        ("--max-wait=1.5m", 90, 90),
        ("--max-wait=10m", 600, 600),
        ("--max-wait=2h", 7200, 7200),
        ("--max-wait=1d", 86_400, 86_400),
    ],
)
def test_it_waits_for_as_long_as_it_is_told_or_as_a_client_does_and_says_so(
    option: str,
    asked: float | None,
    seconds: float,
    fairlock: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, waits_for = Mock(return_value=nullcontext()), Mock()
    acquire = Mock(side_effect=LockWaitTimeout)
    monkeypatch.setattr(run, "told_of_a_wait", told)
    monkeypatch.setattr(run, "waits_for", waits_for)
    monkeypatch.setattr(LockClient, "acquire", acquire)
    assert fairlock(f"run x {option} -- true").status == exit_codes.TAKEN
    _, _, line = told.call_args.args
    line()
    assert waits_for.call_args.kwargs["seconds"] == seconds
    assert acquire.call_args.kwargs["max_wait"] == asked


def test_who_reads_no_terminal_is_told_of_the_wait_and_of_its_end(
    fairlock: Run, store: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the errors, and with the status of before. The holder releases when it is told."""
    told: list[str] = []

    def say(message: object) -> None:
        told.append(str(message))
        store.release(release("anna"))

    store.acquire(acquire("anna"))
    monkeypatch.setattr(run, "UNTOLD_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(exit_codes, "say", say)
    answer = fairlock(f"run {LOCK} --max-wait 60 -- sh -c 'echo ran; exit 7'")
    assert answer[:2] == (7, "ran\n")
    waits, acquired = told
    assert waits.startswith(f"waiting for lock '{LOCK}', for up to 60 s; held by anna since ")
    assert re.fullmatch(rf"lock '{LOCK}' acquired after \d+ s", acquired)


@pytest.mark.parametrize(("option", "count"), [("", 2), ("--quiet", 1)])
def test_quietly_only_the_end_of_a_vain_wait_is_told(
    option: str, count: int, fairlock: Run, store: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "UNTOLD_WAIT_SECONDS", 0)
    store.acquire(acquire("anna"))
    status, _, errors = fairlock(f"run {LOCK} --max-wait 1 {option} -- true")
    assert (status, len(errors.splitlines())) == (exit_codes.TAKEN, count)
    assert errors.endswith("; the command was not started\n")
