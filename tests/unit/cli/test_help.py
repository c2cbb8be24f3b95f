"""The help of each command: examples that parse, every exit status, and a page that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import typer.core
import typer.main

from fairlock.cli import endings, exit_codes, lines, main
from fairlock.cli.app import app
from fairlock.cli.endings import ENDINGS, ending

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / endings.PAGE).read_text()
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
