"""All searches begin at the first test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.searches import LONGEST_SECONDS, Searches, run_searches
from tests.support.record import RECORDS, leave_out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the searches out of a run of all suites, unless they are due."""
    leave_out(config, items, is_search, of=RECORDS["model"])
    for item in filter(is_search, items):
        item.add_marker(pytest.mark.timeout(LONGEST_SECONDS))


def is_search(item: pytest.Item) -> bool:
    return item.path.parent == Path(__file__).parent


@pytest.fixture(scope="session")
def searches() -> Iterator[Searches]:
    with run_searches() as searches:
        yield searches
