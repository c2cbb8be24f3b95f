"""What may be published: a tag that fits, a known repository, a dated changelog.

`make release-check` builds and installs the packages; that needs the network.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from release import checks
from release.environments import CheckFailedError, oldest_and_newest, run

CHANGELOG = """# Changelog

## Unreleased

Nothing.

## 0.2.0 (2030-03-17)

- Second.

## 0.1.0 (not released)

- First.
"""
URL = "https://code.example/fairlock"


def test_the_changelog_has_a_section_for_the_version_that_would_be_built() -> None:
    version = checks.project()["version"]
    _, notes = checks.notes_of(version, (checks.ROOT / "CHANGELOG.md").read_text())
    assert notes.startswith("The first release.")
    assert "## " not in notes.replace("### ", "")


def test_the_notes_of_a_version_end_where_the_next_begin() -> None:
    assert checks.notes_of("0.2.0", CHANGELOG) == ("2030-03-17", "- Second.")
    assert checks.notes_of("0.1.0", CHANGELOG) == ("not released", "- First.")
    with pytest.raises(CheckFailedError, match=r"no heading `## 0\.3\.0"):
        checks.notes_of("0.3.0", CHANGELOG)


def test_a_tag_may_be_published_that_fits_version_address_and_date() -> None:
    checks.may_be_published("v0.2.0", "0.2.0", URL, CHANGELOG)


@pytest.mark.parametrize(
    ("tag", "version", "repository", "told"),
    [
        ("v0.2.1", "0.2.0", URL, "the tag is v0.2.1: set `version`"),
        ("v0.2.0", "0.2.0", "", "set `repository` in pyproject.toml"),
        ("v0.1.0", "0.1.0", URL, "say when 0.1.0 is released"),
        ("v0.3.0", "0.3.0", URL, "no heading"),
    ],
)
def test_any_other_tag_is_refused_and_the_error_says_what_to_do(
    tag: str, version: str, repository: str, told: str
) -> None:
    with pytest.raises(CheckFailedError, match=told):
        checks.may_be_published(tag, version, repository, CHANGELOG)


def test_a_python_that_only_seems_to_be_there_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minor in (11, 29):
        shim = tmp_path / f"python3.{minor}"
        shim.write_text("#!/bin/sh\necho not found >&2\nexit 127\n")
        shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for python in oldest_and_newest():
        asked = run(
            [str(python), "-c", "import sys; print(sys.version_info >= (3, 11))"], cwd=tmp_path
        )
        assert asked == "True\n"


def test_a_command_that_fails_shows_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match=r"status 3 of .*\nno luck"):
        run([sys.executable, "-c", "print('no luck'); raise SystemExit(3)"], cwd=tmp_path)
