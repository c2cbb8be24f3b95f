"""Exit statuses of what goes wrong before a command is started; within this process."""

from __future__ import annotations

import importlib
import math
import re
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer.core
import typer.main

from fairlock import Lock, LockClient, LockWaitTimeout
from fairlock.cli import exit_codes, lines, main
from fairlock.cli.app import app
from fairlock.cli.exit_codes import ENDINGS, ending
from testbed.localaws import LocalAws
from tests.unit.cli.fleet import TABLE, until

Terminal = tuple[pytest.CaptureFixture[str], pytest.LogCaptureFixture]
run = importlib.import_module("fairlock.cli.run")
"""The module: the package has nothing else of that name, but the module has a function."""


@pytest.fixture(autouse=True)
def environment(aws: LocalAws, lock_table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**aws.environment, "FAIRLOCK_TABLE_NAME": lock_table}.items():
        monkeypatch.setenv(name, value)


def status_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["fairlock", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def answered(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The status, of a later try if a busy machine has not answered in time."""
    statuses = (status_of(monkeypatch, *arguments) for _ in range(5))
    return next(status for status in statuses if status != exit_codes.UNAVAILABLE)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("run", "Missing argument"),
        ("run x", "command: must follow --, with nothing but NAME and options before it"),
        ("run x ./x.sh --limit 5", "fairlock run NAME -- COMMAND (got 'x ./x.sh --limit 5')"),
        ("run x ./x.sh --all", "command: must follow --, with nothing but NAME and options"),
        ("run x ./x.sh -- --all", "command: must follow --, with nothing but NAME and options"),
        ("run -- ./x.sh a", "command: must follow --, with nothing but NAME and options before it"),
        ("pace x ./x.sh --rate 1/1h", "before it: fairlock pace NAME -- COMMAND (got 'x ./x.sh"),
        ("run x --nonsense -- true", "No such option"),
        ("run x --max-wait -1 -- true", "'-1' must be a time: seconds such as 90"),
        ("run x --max-wait soon -- true", "'soon' must be a time"),
        (f"run x --grace 1{'0' * 400} -- true", "must be a time: seconds such as 90, or a number"),
        ("run x --table= -- true", "no lock table is named: give --table"),
        ("run x --grace nan -- true", "'nan' must be a time"),
        ("run x --lease 5w -- true", "'5w' must be a time"),
        ("watch --every 0.1s", "'0.1s' must be a time of at least 0.5 s"),
        ("asl --task - --lock-name x --lease 0.5s", "must be a time of at least 1 s"),
        ("asl --task - --lock-name x --lease 1.5s", "must be a whole number of seconds"),
        ("ls --table a --stack b", "give either --table, or --stack"),
        ("ls --stack a/b", "stack: must be the name of a stack"),
        ("run x --data [1] -- true", "--data: must be a JSON object"),
        ("run x --data {x} -- true", "--data: must be a JSON object"),
        ("run x --max-hold 11s --lease 1 -- true", "must be longer than the grace of 10 s and 1 s"),
        ("run x --max-hold 30s -- true", "max_hold: must be a number of seconds, at least 40 with"),
        ("run --lock=a -- true", "lock: must be left out"),
        ("run --lock a --lock b -- echo", "fairlock run A -- fairlock run B -- COMMAND"),
        *(
            (f"run x --only-newest={version} -- true", "--only-newest")
            for version in ("7.5", "-1", "latest", "")
        ),
        *(
            (f"pace x --rate={rate} -- true", "--rate")
            for rate in ("10", "10/", "/60", "x/60", "-1/60", "1.5/60", "10/soon")
        ),
        ("nonsense", "No such command"),
    ],
)
def test_wrong_usage_is_64(
    line: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert status_of(monkeypatch, *line.split()) == 64
    assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_commands_own_2_is_no_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_of(monkeypatch, "run", "two", "--", "sh", "-c", "exit 2") == 2


def test_a_command_that_a_signal_ends_is_told_as_shells_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        status_of(monkeypatch, "run", "ended-by-a-signal", "--", "sh", "-c", "kill -9 $$")
        == 128 + 9
    )


@pytest.mark.parametrize(("command", "status"), [("nosuch", 127), ("/dev/null", 126), ("true", 0)])
def test_a_command_that_cannot_be_started_is_told_as_shells_do(
    command: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status_of(monkeypatch, "run", "start", "--", command) == status


@pytest.fixture
def terminal(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Terminal:
    """What is printed, and what is logged, which pytest keeps from the terminal."""
    return capfd, caplog


@pytest.mark.parametrize("line", ["run words --", "pace words --rate 10/1s --"])
def test_a_command_in_one_word_is_told_what_to_write(
    line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, *line.split(), "echo hi") == 127
    told = "; 'echo hi' is one word: give the words separately, or use sh -c"
    assert told in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "told", "status"),
    [
        ("run x --table nope -- true", "for the table of a stack, give --stack (An error", 78),
        ("run x --table a=b -- true", "for the table of a stack, give --stack (got 'a=b')", 64),
        ("run customer/ -- true", 'pass the value: "customer/${customer_id:?}" refuses an emp', 0),
    ],
)
def test_what_to_write_is_told_in_words_of_the_shell(
    line: str, told: str, status: int, monkeypatch: pytest.MonkeyPatch, terminal: Terminal
) -> None:
    captured, logged = terminal
    assert answered(monkeypatch, *line.split()) == status
    lines = [exit_codes.LogLines().format(record) for record in logged.records]
    shown = " ".join([captured.readouterr().err, *lines])
    assert told in shown
    assert not re.search("from_stack|composite_name", shown)


def test_a_superseded_command_is_not_started_and_has_a_status_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def status(version: str, *words: str) -> object:
        return status_of(monkeypatch, "run", "newest", "--only-newest", version, *words)

    assert status("7", "--", "true") == 0
    assert status("6", "--", "echo", "ran") == exit_codes.SUPERSEDED
    refused = "fairlock: lock 'newest': version 6 is superseded, 7 was granted the lock; "
    assert capfd.readouterr() == ("", f"{refused}the command was not started\n")
    assert status("6", "--superseded-exit-code", "0", "--", "false") == 0
    assert status("now", "--", "true") == 0
    assert status_of(monkeypatch, "show", "newest") == 0
    assert "newest version granted: 1" in capfd.readouterr().out


def test_no_answer_is_69_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert status_of(monkeypatch, "run", "x", "--max-wait", "0", "--", "echo", "ran") == 69
    told = capsys.readouterr()
    assert (
        f"lock table {TABLE!r} in us-east-1 at http://127.0.0.1:9: the lock table did not"
        in told.err
    )
    assert told.err.endswith("; the command was not started\n")
    assert told.out == ""


def test_a_table_that_cannot_be_made_for_want_of_an_answer_is_69(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert status_of(monkeypatch, "create-table", "new") == 69
    assert "lock table 'new' in us-east-1 at http://127.0.0.1:9: " in capsys.readouterr().err


@pytest.mark.parametrize("given", [None, ""])
@pytest.mark.parametrize("line", ["run x -- true", "ls", "show x", "doctor"])
def test_without_a_table_it_says_where_the_name_stands(
    line: str,
    given: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME")
    if given is not None:
        monkeypatch.setenv("FAIRLOCK_TABLE_NAME", given)
    monkeypatch.setenv("COLUMNS", "200")
    assert status_of(monkeypatch, *line.split()) == 64
    told = capsys.readouterr().err
    assert "give --table (its value is the output LockTableName of the stack" in told
    assert told.endswith(" or --stack, or set FAIRLOCK_TABLE_NAME\n")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--region=somewhere_", "give the name of a region, such as eu-central-1; check --region"),
        ("--endpoint-url=somewhere", "must be a URL, such as http://127.0.0.1:8000; check --end"),
        ("--profile=nosuch", "has no such profile; check --profile or AWS_PROFILE"),
    ],
)
def test_a_place_that_there_cannot_be_is_78_and_names_the_option(
    option: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, "show", "x", option) == 78
    assert told in capsys.readouterr().err


def test_no_table_is_78(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, "run", "x", "--table", "nosuch", "--", "true") == 78
    assert status_of(monkeypatch, "show", "x", "--table", "nosuch") == 78
    assert capsys.readouterr().err.count("lock table 'nosuch' in us-east-1: there is no such") == 2


def test_the_lock_of_a_holder_that_vanished_is_taken_at_the_first_attempt_after_its_lease(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the attempt before."""
    words = ("run", "vanished", "--max-wait", "0", "--", "true")
    with LockClient(TABLE, client=aws.client("dynamodb"), heartbeat_every=math.inf) as locks:
        locks.acquire("vanished", lease=6)
        ended = time.monotonic() + 6
        assert answered(monkeypatch, *words) == 75
        until(lambda: time.monotonic() > ended + 5)
        assert answered(monkeypatch, *words) == 0


@pytest.mark.parametrize(
    ("option", "waits"),
    [
        ("--lease=90", None),
        ("--max-wait=7", 7),
        ("--max-wait=30s", 30),
        ("--max-wait=1.5m", 90),
        ("--max-wait=10m", 600),
        ("--max-wait=2h", 7200),
        ("--max-wait=1d", 86_400),
    ],
)
def test_without_being_told_it_waits_for_as_long_as_a_client_does(
    option: str, waits: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def acquire(_client: LockClient, _name: str, **wanted: object) -> Lock:
        asked.append(wanted["max_wait"])
        raise LockWaitTimeout

    monkeypatch.setattr(LockClient, "acquire", acquire)
    assert status_of(monkeypatch, "run", "x", option, "--", "true") == 75
    assert asked == [waits]


@pytest.mark.parametrize(
    ("option", "seconds"), [("--lease=90", 180), ("--max-wait=7", 7), ("--lease=5", 120)]
)
def test_who_waits_is_told_for_how_long(
    option: str, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    @contextmanager
    def told_of_a_wait(*_told: object, **_more: object) -> Iterator[None]:
        told: Any = _told[2]
        told()
        yield

    def acquire(_client: LockClient, _name: str, **_wanted: object) -> Lock:
        assert asked
        raise LockWaitTimeout

    monkeypatch.setattr(run, "waits_for", lambda *_, seconds: asked.append(seconds))
    monkeypatch.setattr(run, "told_of_a_wait", told_of_a_wait)
    monkeypatch.setattr(LockClient, "acquire", acquire)
    assert status_of(monkeypatch, "run", "a b", option, "--", "true") == 75
    assert asked == [seconds]


def test_who_reads_no_terminal_is_told_of_the_wait_and_of_its_end(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Among the errors, and with the status of before. The holder releases when it is told."""
    told: list[str] = []
    with LockClient(TABLE, client=aws.client("dynamodb"), owner_name="anna") as locks:
        held = locks.acquire("told")

        def say(message: object) -> None:
            told.append(str(message))
            held.release()

        monkeypatch.setattr(run, "UNTOLD_WAIT_SECONDS", 0.5)
        monkeypatch.setattr(exit_codes, "say", say)
        command = ("run", "told", "--max-wait", "60", "--", "sh", "-c", "echo ran; exit 7")
        assert status_of(monkeypatch, *command) == 7
    waits, acquired = told
    assert waits.startswith("waiting for lock 'told', for up to 60 s; held by anna since ")
    assert re.fullmatch(r"lock 'told' acquired after \d+ s", acquired)
    assert capfd.readouterr().out == "ran\n"


@pytest.mark.parametrize(("more", "lines"), [((), 2), (("--quiet",), 1)])
def test_quietly_only_the_end_of_a_vain_wait_is_told(
    more: tuple[str, ...],
    lines: int,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "UNTOLD_WAIT_SECONDS", 0)
    with LockClient(TABLE, client=aws.client("dynamodb")) as locks, locks.hold("vain"):
        words = ("run", "vain", "--max-wait", "1", *more, "--", "true")
        assert status_of(monkeypatch, *words) == 75
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines
    assert "not handed over within 1 s; last held by" in told[-1]


def test_a_table_is_made_once_and_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert status_of(monkeypatch, "create-table", "fresh") == 0
    assert status_of(monkeypatch, "run", "x", "--table", "fresh", "--", "true") == 0


def test_without_its_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("fairlock.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    assert status_of(monkeypatch, "show", "x") == (
        "fairlock: the command line needs typer, an optional part of Fairlock: "
        "install Fairlock from its repository with the extra 'cli'"
    )


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert EntryPoint("fairlock", project["project"]["scripts"]["fairlock"], "").load() is main


# The help of each command: examples that parse, every exit status, and a page that is there.

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / exit_codes.PAGE).read_text()
URL = "https://code.example/fairlock"


def answer_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["fairlock", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    return ended.value.code, output.out, output.err


def test_the_bare_command_shows_the_help_and_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = answer_of(monkeypatch, capsys)
    assert bare == answer_of(monkeypatch, capsys, "--help")
    assert bare[0] == 0
    assert "fairlock run nightly-report -- ./report.sh" in bare[1]
    assert answer_of(monkeypatch, capsys, "runn")[0] == exit_codes.USAGE


def test_each_command_has_examples_and_nothing_in_the_list_of_commands_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = typer.main.get_command(app)
    assert isinstance(commands, typer.core.TyperGroup)
    assert set(ENDINGS) == {"fairlock", *commands.commands}
    assert "..." not in answer_of(monkeypatch, capsys)[1].replace("[ARGS]...", "")
    for name in commands.commands:
        output = answer_of(monkeypatch, capsys, name, "--help")[1]
        for example in ENDINGS[name].examples:
            assert f"\n    {example}\n" in output
        assert "Exit statuses:" in output


def test_a_word_in_brackets_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "fairlock[cdk]" in answer_of(monkeypatch, capsys, "asl", "--help")[1]


def test_the_statuses_and_headings_of_the_help_are_those_of_the_page() -> None:
    section = PAGE.partition("## Exit statuses")[2].partition("\n## ")[0]
    told = set(re.findall(r"\b[67]\d\b", section))
    assert {str(exit_codes.TAKEN), str(exit_codes.LOST)} <= told <= set(ENDINGS["run"].statuses)
    headings = {
        heading.lower().replace(" ", "-")
        for heading in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    }
    assert {one.heading for one in ENDINGS.values()} - {""} <= headings


def test_the_page_is_named_by_its_address_if_the_package_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ending("ls").endswith("More: docs/command-line.md#see-locks")

    class Published:
        def get_all(self, _name: str) -> list[str]:
            return [f"Changelog, {URL}/x", f"Repository, {URL}"]

    monkeypatch.setattr("importlib.metadata.metadata", lambda _: Published())
    assert ending("ls").endswith(f"More: {URL}/blob/main/docs/command-line.md#see-locks")


@pytest.mark.parametrize(("no_color", "codes"), [("", 1), ("1", 0)])
def test_no_color_takes_the_bold_away_too(
    no_color: str, codes: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    console = lines.screen()
    console.print("held", style="bold red")
    assert capsys.readouterr().out.count("\x1b[1") == codes
