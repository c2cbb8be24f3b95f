"""The help of each command: examples that parse, every exit status, and a page that is there."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer.core
import typer.main

from fairlock.cli import exit_codes, lines, main
from fairlock.cli.app import app
from fairlock.cli.exit_codes import ENDINGS, ending
from tests.unit.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / exit_codes.PAGE).read_text()
URL = "https://code.example/fairlock"


def test_the_bare_command_shows_the_help_and_succeeds(run_line: Run) -> None:
    bare = run_line("")
    assert bare == run_line("--help")
    assert bare.status == 0
    assert "fairlock run nightly-report -- ./report.sh" in bare.out
    assert "--install-completion" in bare.out
    assert run_line("--version").out.startswith("fairlock 0.")


def test_each_command_has_examples_and_nothing_in_the_list_of_commands_is_cut(
    run_line: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    commands = typer.main.get_command(app)
    assert isinstance(commands, typer.core.TyperGroup)
    assert set(ENDINGS) == {"fairlock", *commands.commands}
    assert "..." not in run_line("").out.replace("[ARGS]...", "")
    for name in commands.commands:
        output = run_line(f"{name} --help").out
        for example in ENDINGS[name].examples:
            assert f"\n    {example}\n" in output
        assert "Exit statuses:" in output
    assert "fairlock[cdk]" in run_line("asl --help").out, "a word in brackets is no markup"


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
    lines.screen().print("held", style="bold red")
    assert capsys.readouterr().out.count("\x1b[1") == codes


def test_without_its_extra_the_command_says_what_to_install(
    run_line: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("fairlock.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    assert run_line("show x").status == (
        "fairlock: the command line needs typer, an optional part of Fairlock: "
        "install Fairlock from its repository with the extra 'cli'"
    )


def test_the_installed_command_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert EntryPoint("fairlock", project["project"]["scripts"]["fairlock"], "").load() is main
