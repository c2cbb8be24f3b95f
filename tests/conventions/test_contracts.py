"""What contracts list is what is exported: one list of public names, by package."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import fairlock

ROOT = Path(__file__).resolve().parents[2]
PUBLIC: dict[str, str] = {
    "fairlock": """
        AsyncLock AsyncLockClient CancellationReason ClientUnusable DescribedForcedRelease
        DescribedHolder DescribedQueue DescribedWaiter HolderChanged InvalidRequest FairlockError
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
