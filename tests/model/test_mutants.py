"""A search that finds nothing proves nothing, unless it finds what is broken on purpose."""

from __future__ import annotations

import pytest

from tests.model.conftest import Searches
from tests.model.contention.mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_a_protocol_without_one_protection_is_found_broken(searches: Searches, name: str) -> None:
    report = searches.mutant(name)
    assert report.broken is MUTANTS[name].breaks
    assert report.trace


@pytest.mark.parametrize("name", MUTANTS)
def test_with_the_protection_the_same_search_finds_nothing(searches: Searches, name: str) -> None:
    assert searches.control(name).trace == ()
