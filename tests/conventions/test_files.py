"""The files of the package, of the documents, and the names in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fairlock
from fairlock.client.arguments import LONGEST_WAIT_SECONDS
from fairlock.protocol.waiters import (
    MOST_PAGES_READ,
    MOST_PLACES_OF_AN_EXECUTION,
    MOST_WAITERS,
)
from fairlock.wire import rules
from tests.support.checkout import ROOT, Cache, digest_of

# The package is a few files, each a page that can be read from top to bottom, under one name.

MOST_FILES = 121
MOST_LINES = 450


def test_the_package_has_few_files_none_too_long_and_no_name_twice() -> None:
    """Each package has an `__init__.py`."""
    files = list((ROOT / "fairlock").rglob("*.py"))
    assert 100 < len(files) <= MOST_FILES
    assert [path for path in files if len(path.read_text().splitlines()) > MOST_LINES] == []
    names = Counter(path.name for path in files if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


# No file has the name that the project had before, but for the changelog, and none names the host
# of a package registry: a company's mirror serves the same packages.
#
# A host in a lock file or a link sends a download past the mirror that the reader's machine is set
# up for, and says where a package is as if there were one such place.

OLD_NAME = re.compile("lease" + "hold", re.IGNORECASE)
HOSTS = tuple(
    f"{name}.{top}"  # in two parts, so that this file names none
    for top, names in {
        "org": "pypi pythonhosted pypi.python anaconda npmjs rubygems proxy.golang packagist nuget "
        "repo.maven.apache repo1.maven deb.debian",
        "com": "npmjs yarnpkg central.sonatype archive.ubuntu",
        "io": "crates jsr registry-1.docker ghcr",
    }.items()
    for name in names.split()
)
HOST = re.compile("|".join(rf"\b{re.escape(host)}\b" for host in HOSTS), re.IGNORECASE)


def found_in(files: Iterable[Path], root: Path, pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` where a file has it; line 0 is the file's name."""
    return [
        f"{name}:{number}: {found[0]}"
        for path in files
        for name in [path.relative_to(root).as_posix()]
        for number, line in enumerate((name, *path.read_text(errors="replace").splitlines()))
        if (found := pattern.search(line))
    ]


def test_no_file_has_the_old_name_or_names_the_host_of_a_package_registry() -> None:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    assert found_in(files, ROOT, HOST) == []
    assert {each.split(":")[0] for each in found_in(files, ROOT, OLD_NAME)} <= {"CHANGELOG.md"}


@pytest.mark.parametrize("host", HOSTS[::10])
def test_a_host_and_the_old_name_are_found_in_a_link_a_lock_file_and_a_name(
    host: str, tmp_path: Path
) -> None:
    old = "Lease" + "hold"
    (tmp_path / f"{old}.md").write_text(f"See\n[it](https://{host}/project/x/).")
    (tmp_path / "lock.json").write_text(f'"{old}": "https://files.{host.upper()}/x"')
    (tmp_path / "plain.md").write_text("It is on PyPI, and on npm. A lease is held.")
    files = sorted(tmp_path.iterdir())
    assert found_in(files, tmp_path, HOST) == [
        f"{old}.md:2: {host}",
        f"lock.json:1: {host.upper()}",
    ]
    assert found_in(files, tmp_path, OLD_NAME) == [f"{old}.md:0: {old}", f"lock.json:1: {old}"]


# The figures of docs/costs.md are those of the code.

PAGE = (ROOT / "docs" / "costs.md").read_text()
UNITS_A_SECOND = 1000


def row(name: str) -> str:
    """The limit of this name."""
    [found] = re.findall(rf"^\| {re.escape(name)} \| ([^|]*) \|", PAGE, re.MULTILINE)
    return str(found)


def test_the_limits_of_the_page_are_those_of_the_rules() -> None:
    assert f"1 to {rules.LONGEST_LOCK_NAME_BYTES} bytes" in row("lock name")
    assert f"{rules.LONGEST_OWNER_NAME} characters" in row("`owner_name`")
    assert f"{rules.LONGEST_OWNER_NAME_BYTES:,} bytes" in row("`owner_name`")
    assert f"{rules.LARGEST_DATA_BYTES // 1024} KiB" in row("`data`")
    assert f"1 to {rules.HIGHEST_LIMIT};" in row("permits of a lock")
    assert f"1 s to {rules.LONGEST_LEASE_SECONDS // 3600} h" in row("lease")
    assert f"{MOST_WAITERS:,}; or {MOST_PAGES_READ} MB" in row("waiters of a lock")
    assert row("waiters of one execution") == f"{MOST_PLACES_OF_AN_EXECUTION} in a queue"
    assert f"{rules.LONGEST_PERIOD_SECONDS // 86_400} days" in row("rate of a pace")
    assert f"{rules.MOST_A_SECOND} a second" in row("rate of a pace")
    assert row("wait for a slot of a pace") == f"{rules.LONGEST_PACE_WAIT_SECONDS // 86_400} days"
    assert row("wait of a Python client") == f"{LONGEST_WAIT_SECONDS // 86_400} days"


def test_the_rates_of_the_page_follow_from_the_units_that_the_protocol_counts() -> None:
    counted = re.findall(
        r"^\| (\d+) \| [^|]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$",
        (ROOT / "docs" / "protocol.md").read_text(),
        re.MULTILINE,
    )
    [told] = re.findall(
        r"to \[(\d+) guards a second\]\([^)]+\), or to (\d+) if all wait\. "
        r"If 20 permits are in use, it is (\d+) or (\d+), and if 100 are, (\d+) or (\d+)\.",
        " ".join(PAGE.split()),
    )
    rates: dict[str, tuple[int, int]] = {}
    for permits, *units in counted:
        acquire, release, join, hand_off = map(int, units)
        alone, waiting = acquire + release, join + hand_off
        rates[permits] = UNITS_A_SECOND // alone, UNITS_A_SECOND // waiting
    assert [*map(int, told)] == [*rates["1"], *rates["20"], *rates["100"]]


# What contracts list is what is exported: one list of public names, by package.

PUBLIC: dict[str, str] = {
    "fairlock": """
        AsyncLock AsyncLockClient CancellationReason ClientUnusable DescribedCeiling
        DescribedForcedRelease DescribedHolder DescribedQueue DescribedWaiter HolderChanged
        InvalidRequest FairlockError
        Lock LockClient LockDescription LockEvent LockEventKind LockItemMalformed LockLost
        LockStoreMisconfigured LockStoreUnavailable LockWaitTimeout OutcomeUnknown SlotTooLate
        Superseded TransactionRefused VersionConflict composite_name create_table locked
    """,
    "fairlock.aio": "AsyncLock AsyncLockClient",
    "fairlock.cdk": """
        ExecutionReaper ILockService LockAlarms LockGuard LockMonitoring LockService MetricName
        OptimisticUpdate Pace SharedLockService Waiting
    """,
    "fairlock.durable": "DurableLock LockFunctions hold",
    "fairlock.guarded": "FenceCondition GuardedWrites condition_check fence_condition",
    "fairlock.optimistic": "RetryBudget delete put read update",
    "fairlock.testing": """
        FakeAsyncLockClient FakeLockClient FakeTable ManualClock run_in_virtual_time
        used_by_locked_functions
    """,
}
PAGES = {
    "docs/upgrades.md": r"^\| what (.*) export \|",
    "CONTRIBUTING.md": r"^\* Public names (.*)",
}


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_exports_what_the_list_says_and_each_name_is_there(package: str) -> None:
    module = import_module(package)
    assert sorted(module.__all__) == sorted(PUBLIC[package].split())
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_what_is_imported_late_is_exported() -> None:
    assert set(fairlock._IMPORTED_LATE) <= set(fairlock.__all__)  # noqa: SLF001 - the very question


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_about_contracts_name_these_packages_and_no_other(page: str) -> None:
    text = (ROOT / page).read_text()
    [row] = re.findall(PAGES[page], text, re.MULTILINE)
    assert set(re.findall(r"`(fairlock[.a-z]*)`", row)) == set(PUBLIC)


@pytest.mark.parametrize("package", ["fairlock.client", "fairlock.decorator"])
def test_what_is_below_is_no_second_address(package: str) -> None:
    assert not {"Lock", "LockClient", "locked"} & set(import_module(package).__dict__) - {"locked"}
    assert not hasattr(import_module(package), "__all__")


# What passed before is known again on the same files, and on no others.

SOURCES = ("tests/support/checkout.py", "fairlock/clock.py")
OF_A_SEARCH = """
from tests.model import searches
from tests.support.checkout import files_of_imported_packages
print(*files_of_imported_packages(), sep="\\n")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*SOURCES, "requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
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


def test_the_digest_of_a_search_counts_every_file_that_it_runs() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", OF_A_SEARCH],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.split()
    assert {
        str(ROOT / path)
        for path in (
            "fairlock/store/acquire.py",
            "fairlock/protocol/grants.py",
            "fairlock/aws/lock_table.py",
            "tests/model/contention/mutants.py",
            "tests/model/search.py",
        )
    } <= set(listed)
    assert not [path for path in listed if "/site-packages/" in path]


def test_a_search_that_passed_is_skipped_on_the_same_files_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # The one that is loaded: an import would run it once more.
    conftest: Any = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py"))
    config = SimpleNamespace(getini=lambda _name: ["tests"], args=["tests"])
    marks = {"cached": pytest.mark.cached(below="tests/fuzz").mark}
    item: Any = SimpleNamespace(get_closest_marker=marks.get, nodeid="test", config=config)
    for passed in (False, True):
        assert not conftest.has_passed_before(item)
        hook: Any = conftest.pytest_runtest_makereport(item)
        next(hook)
        with pytest.raises(StopIteration):
            hook.send(SimpleNamespace(when="call", passed=passed))
    assert conftest.has_passed_before(item)
    config.args = ["tests/fuzz"]
    assert not conftest.has_passed_before(item)
    config.args, marks["cached"] = ["tests"], pytest.mark.cached(below="tests/clocks").mark
    assert not conftest.has_passed_before(item)
    marks.clear()
    assert not conftest.has_passed_before(item)
