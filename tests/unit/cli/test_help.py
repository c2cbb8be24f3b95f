"""The help of each command: examples that parse, every exit status, and a page that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import typer.core
import typer.main

from fairlock.cli import exit_codes, lines, main
from fairlock.cli.app import app
from fairlock.cli.exit_codes import ENDINGS, ending
from fairlock.cli.target import rate_of
from tests.unit.cli.fleet import Fleet
from tests.unit.cli.support import PICTURE, WIDTHS, draw

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / exit_codes.PAGE).read_text()
URL = "https://code.example/fairlock"


def told(
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
    bare = told(monkeypatch, capsys)
    assert bare == told(monkeypatch, capsys, "--help")
    assert bare[0] == 0
    assert "fairlock run nightly-report -- ./report.sh" in bare[1]
    assert told(monkeypatch, capsys, "runn")[0] == exit_codes.USAGE


def test_each_command_has_examples_and_nothing_in_the_list_of_commands_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = typer.main.get_command(app)
    assert isinstance(commands, typer.core.TyperGroup)
    assert set(ENDINGS) == {"fairlock", *commands.commands}
    assert "..." not in told(monkeypatch, capsys)[1].replace("[ARGS]...", "")
    for name in commands.commands:
        output = told(monkeypatch, capsys, name, "--help")[1]
        for example in ENDINGS[name].examples:
            assert f"\n    {example}\n" in output
        assert "Exit statuses:" in output


def test_a_word_in_brackets_is_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "fairlock[cdk]" in told(monkeypatch, capsys, "asl", "--help")[1]


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


# The picture in docs/command-line.md shows what the command shows.


def test_the_picture_in_the_document_is_what_watch_shows_today() -> None:
    """Run `python -m tests.unit.cli.support` after a change of the table."""
    assert draw("watch", 80) == PICTURE.read_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_ls_shows_the_same_rows_as_watch(width: int) -> None:
    cells = ["customer/1234", "Billing:run-1", "1/1", "3/5", "over", "4m&#160;00s"]
    for command in ("ls", "watch"):
        assert [cell for cell in cells if cell not in draw(command, width)] == []


# `fairlock pace`: waits for a slot, and becomes the command.


def test_it_becomes_the_command_which_ends_with_its_own_status(fleet: Fleet) -> None:
    line = ("pace", "becomes", "--rate", "10/1m", "--")
    assert fleet.run(*line, "sh", "-c", "echo $$; exit 7")[0] == 7
    process = fleet.start("pace", "same-process", "--rate", "10/1m", "--", "sh", "-c", "echo $$")
    out, errors = process.communicate(timeout=60)
    assert (out.strip(), errors) == (str(process.pid), "")


def test_a_slot_that_is_too_late_starts_nothing(fleet: Fleet) -> None:
    hourly = ("pace", "hourly", "--rate", "1/1h", "--max-wait", "0")
    assert fleet.run(*hourly, "--", "true")[0] == 0
    status, out, errors = fleet.run(*hourly, "--", "echo", "ran")
    assert (status, out) == (exit_codes.TAKEN, "")
    assert "pace 'hourly': the next slot begins in 3" in errors
    assert errors.endswith("nothing was reserved; the command was not started\n")
    assert fleet.run(*hourly, "--late-exit-code", "0", "--", "echo", "ran")[:2] == (0, "")


def test_a_long_wait_for_a_slot_is_told_unless_quiet(fleet: Fleet) -> None:
    line = ("pace", "told", "--rate", "1/4s", "--max-wait", "60")
    fleet.run(*line, "--", "true")
    errors = fleet.run(*line, "--", "true")[2]
    assert re.fullmatch(
        "fairlock: waiting for a slot of pace 'told', for up to 60 s\n"
        "fairlock: slot of pace 'told' begins after [3-9] s\n",
        errors,
    )
    assert fleet.run(*line, "--quiet", "--", "true")[1:] == ("", "")


def test_the_command_is_not_deaf_to_a_closed_pipe(fleet: Fleet) -> None:
    """Python ignores SIGPIPE, and a program that is started inherits what is ignored."""
    command = ("sh", "-c", "grep SigIgn /proc/self/status")
    _, out, _ = fleet.run("pace", "pipes", "--rate", "10/1m", "--", *command)
    ignored = int(out.split()[1], 16)
    assert not ignored & 1 << 12  # SIGPIPE is 13.


@pytest.mark.parametrize(("command", "status"), [("nosuch", 127), ("/dev/null", 126)])
def test_a_command_that_cannot_be_started_is_told_as_shells_do(
    fleet: Fleet, command: str, status: int
) -> None:
    assert fleet.run("pace", f"start-{status}", "--rate", "10/1m", "--", command)[0] == status


def test_paces_are_no_locks_for_ls_and_show(fleet: Fleet) -> None:
    assert fleet.run("pace", "unseen", "--rate", "1/1h", "--", "true")[0] == 0
    assert "unseen" not in fleet.run("ls", "--free")[1]
    assert fleet.run("show", "unseen")[0] == exit_codes.UNKNOWN_LOCK


@pytest.mark.parametrize("rate", ["10", "10/", "/60", "x/60", "-1/60", "1.5/60", "10/soon"])
def test_a_rate_that_is_none_is_wrong_usage(fleet: Fleet, rate: str) -> None:
    status, _, errors = fleet.run("pace", "wrong", f"--rate={rate}", "--", "true")
    assert (status, "--rate" in errors) == (exit_codes.USAGE, True)


def test_a_rate_is_a_number_and_a_time() -> None:
    assert [rate_of(text) for text in ("10/1m", "1/1h", "5/60", "3/0.5s")] == [
        (10, 60.0),
        (1, 3600.0),
        (5, 60.0),
        (3, 0.5),
    ]
