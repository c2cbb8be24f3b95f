"""All searches begin at the first test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.search import LONGEST_SECONDS, Searches, run_searches


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS))


@pytest.fixture(scope="session")
def searches() -> Iterator[Searches]:
    with run_searches() as searches:
        yield searches
