"""An embedded AWS, started when the first test asks for it and shared by all of a run."""

from collections.abc import Iterator

import pytest

from localaws import LocalAws
from localaws.workbench import Workbench


@pytest.fixture(scope="session")
def corrected() -> Iterator[Workbench]:
    """The embedded AWS as the demo and all other tests use it."""
    with LocalAws() as aws:
        yield Workbench(aws)
