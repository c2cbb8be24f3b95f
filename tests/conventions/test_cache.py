"""What passed before is known again on the same files, and on no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT, Cache, digest_of

SOURCES = ("tests/support/cache.py", "fairlock/clock.py")
OF_A_SEARCH = """
from tests.model import searches
from tests.support.cache import files_of_imported_packages
print(*files_of_imported_packages(), sep="\\n")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*SOURCES, "requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / name, tmp_path / name)
    return tmp_path


def digest(checkout: Path) -> str:
    return digest_of(checkout.rglob("*.py"), checkout)


def append(path: Path) -> None:
    path.write_text(f"{path.read_text() if path.exists() else ''}# changed\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda checkout: append(checkout / SOURCES[0]),
        lambda checkout: append(checkout / "fairlock/new.py"),
        lambda checkout: append(checkout / "requirements.txt"),
        lambda checkout: (checkout / SOURCES[0]).unlink(),
        lambda checkout: (checkout / SOURCES[0]).rename(checkout / "fairlock/moved.py"),
    ],
)
def test_every_change_of_the_files_or_the_pins_is_another_digest(
    checkout: Path, change: Callable[[Path], None]
) -> None:
    before = digest(checkout)
    assert digest(checkout) == before
    change(checkout)
    assert digest(checkout) != before


def test_a_result_is_found_by_its_digest_and_its_name_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    assert cache.get("files", "search") is None
    cache.put("files", "search", {"states": 3})
    assert cache.get("files", "search") == {"states": 3}
    assert cache.get("other files", "search") is None
    assert cache.get("files", "other search") is None


def test_a_broken_entry_and_a_folder_that_cannot_be_written_are_an_empty_cache(
    tmp_path: Path,
) -> None:
    cache = Cache(tmp_path)
    cache.put("files", "search", "found")
    [entry] = tmp_path.iterdir()
    entry.write_bytes(b"half")
    assert cache.get("files", "search") is None
    (tmp_path / "file").touch()
    Cache(tmp_path / "file" / "below").put("files", "search", "found")


def test_the_digest_of_a_search_counts_every_file_that_it_runs() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", OF_A_SEARCH],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.split()
    assert {
        str(CHECKOUT / path)
        for path in (
            "fairlock/store/acquire.py",
            "fairlock/protocol/grants.py",
            "fairlock/aws/lock_table.py",
            "tests/model/contention/mutants.py",
            "tests/model/searches.py",
        )
    } <= set(listed)
    assert not [path for path in listed if "/site-packages/" in path]


def test_a_search_that_passed_is_skipped_on_the_same_files_unless_it_is_asked_for(
    tmp_path: Path,
) -> None:
    def told(*words: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, "-k", "test_a_handler_that_raises_a_key_error_is_found", *words],
            cwd=CHECKOUT,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    asked_for = "tests/fuzz"
    assert "1 passed" in told(asked_for)
    assert "1 skipped" in told("-o", f"testpaths={asked_for}")
    assert "1 passed" in told(asked_for)
