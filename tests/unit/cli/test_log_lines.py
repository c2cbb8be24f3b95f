"""What the client logs is told in lines that a person on call can read."""

from __future__ import annotations

import logging

from botocore.exceptions import NoCredentialsError

from fairlock.aws.retry import misconfigured
from fairlock.cli.exit_codes import LogLines, NotTooOften
from fairlock.errors import FairlockError

TOLD = "lock 'nightly': heartbeat failed"


def record(
    error: Exception | None = None, *, at: float = 0, message: str = TOLD
) -> logging.LogRecord:
    """As `logger.exception` makes it."""
    found = None if error is None else (type(error), error, None)
    made = logging.LogRecord("fairlock", logging.ERROR, "a.py", 1, message, None, found)
    made.created = at
    return made


def told(error: Exception) -> list[str]:
    return LogLines().format(record(error)).splitlines()


def test_an_error_with_advice_is_told_without_its_traceback() -> None:
    error = misconfigured(NoCredentialsError(), table_name="locks", region="eu-west-1")
    assert told(error) == [f"fairlock: {TOLD}", f"fairlock: {error}"]
    assert "check the AWS credentials" in str(error)


def test_a_defect_is_told_by_its_class() -> None:
    """The control: only errors of ours say what to do."""
    first, *rest = told(ZeroDivisionError("a defect"))
    assert first == f"fairlock: {TOLD}"
    assert rest == ["ZeroDivisionError: a defect"]


def test_what_others_have_stored_cannot_command_the_terminal() -> None:
    assert "\x1b" not in "".join(told(FairlockError("evil\x1b[2J")))


def test_the_same_message_is_told_once_a_minute() -> None:
    let_through = NotTooOften().filter
    times = [0.0, 0.5, 59.9, 60.0, 119.9, 7200.0]
    assert [let_through(record(at=at)) for at in times] == [True, False, False, True, False, True]


def test_another_message_or_another_error_is_told_at_once() -> None:
    let_through = NotTooOften().filter
    throttled, refused = FairlockError("throttled"), FairlockError("refused")
    assert [let_through(record(each)) for each in (throttled, refused, throttled)] == [
        True,
        True,
        False,
    ]
    assert let_through(record(message="lock 'nightly' is lost: its lease is over"))
