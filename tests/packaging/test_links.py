"""The package's page: a release names the repository, and no link of it is relative."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
URL = "https://code.example/fairlock"
RELATIVE = re.compile(r"\]\((?!https://|#)")


def metadata(repository: str, home: Path) -> dict[str, Any]:
    """What a package says of itself that is built where pyproject.toml has this address."""
    for name in ("README.md", "LICENSE", "hatch_build.py", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    settings = (ROOT / "pyproject.toml").read_text()
    changed, count = re.subn(
        r'^repository = ".*"$', f'repository = "{repository}"', settings, flags=re.MULTILINE
    )
    assert count == 1
    (home / "pyproject.toml").write_text(changed)
    finished = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=home,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    told: dict[str, Any] = json.loads(finished.stdout)
    return told


@pytest.mark.parametrize("given", [URL, f"{URL}/"])
def test_a_release_names_the_repository_and_links_to_it(given: str, tmp_path: Path) -> None:
    told = metadata(given, tmp_path)
    assert told["urls"]["Repository"] == URL
    assert told["urls"]["Changelog"] == f"{URL}/blob/main/CHANGELOG.md"
    readme = told["readme"]["text"]
    assert not RELATIVE.findall(readme)
    assert f"]({URL}/blob/main/docs/protocol.md)" in readme
    assert f"]({URL}/raw/main/docs/images/demo.svg)" in readme


def test_without_an_address_nothing_is_made_up(tmp_path: Path) -> None:
    told = metadata("", tmp_path)
    assert not told.get("urls")
    assert told["readme"]["text"] == (ROOT / "README.md").read_text()
    assert RELATIVE.findall(told["readme"]["text"])
