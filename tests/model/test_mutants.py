"""A search that finds nothing proves nothing, unless it finds what is broken on purpose."""

from __future__ import annotations

import pytest

from tests.model.catalogue import MUTANTS
from tests.model.searches import Searches


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_without_one_protection_is_found_broken(searches: Searches, name: str) -> None:
    report = searches.mutant(name)
    if not report.whole:
        pytest.skip(f"not within the first {report.states:,} states; `make model` visits all")
    assert report.broken is MUTANTS[name].breaks
    assert report.trace


@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name].patches])
def test_with_the_protection_the_same_search_finds_nothing(searches: Searches, name: str) -> None:
    assert searches.control(name).trace == ()


def test_without_a_second_reap_pass_a_late_acquire_holds_the_lock(searches: Searches) -> None:
    assert searches.mutant("there is no second reap pass").trace[-1] == "anna: acquire_permit"
