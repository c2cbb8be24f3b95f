"""The package's page: a release names the repository, and no link of it is relative."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
URL = "https://code.example/fairlock"
RELATIVE = re.compile(r"\]\((?!https://|#)")


def metadata(**environment: str) -> dict[str, Any]:
    finished = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=ROOT,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    told: dict[str, Any] = json.loads(finished.stdout)
    return told


@pytest.mark.parametrize("given", [URL, f"{URL}/"])
def test_a_release_names_the_repository_and_links_to_it(given: str) -> None:
    told = metadata(FAIRLOCK_REPOSITORY_URL=given)
    assert told["urls"]["Repository"] == URL
    assert told["urls"]["Changelog"] == f"{URL}/blob/main/CHANGELOG.md"
    readme = told["readme"]["text"]
    assert not RELATIVE.findall(readme)
    assert f"]({URL}/blob/main/docs/protocol.md)" in readme
    assert f"]({URL}/raw/main/docs/images/demo.svg)" in readme


def test_without_an_address_nothing_is_made_up() -> None:
    told = metadata(FAIRLOCK_REPOSITORY_URL="")
    assert not told.get("urls")
    assert told["readme"]["text"] == (ROOT / "README.md").read_text()
    assert RELATIVE.findall(told["readme"]["text"])
