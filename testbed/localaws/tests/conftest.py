"""The embedded AWS with all corrections, and instances that lack single ones: the controls."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from testbed.localaws import LocalAws
from testbed.localaws.tests.gates import Gates
from testbed.localaws.workbench import Workbench


def pytest_itemcollected(item: pytest.Item) -> None:
    """These tests test a tool, in real time: they run again after a change of it."""
    item.add_marker(pytest.mark.cached(below="testbed/localaws"))


@pytest.fixture(scope="module")
def corrected(aws: LocalAws) -> Workbench:
    """The embedded AWS as the demo and all other tests use it."""
    return Workbench(aws)


@pytest.fixture(scope="module")
def left_out() -> Iterator[Callable[..., Workbench]]:
    """`left_out("name")` is an embedded AWS without that correction, one per module and name."""
    running: dict[tuple[str, ...], Workbench] = {}
    with contextlib.ExitStack() as stack:

        def without(*names: str) -> Workbench:
            if names not in running:
                running[names] = Workbench(stack.enter_context(LocalAws(without=names)))
            return running[names]

        yield without


@pytest.fixture
def gates(corrected: Workbench) -> Gates:
    """Tasks that wait until the test lets them go on."""
    return Gates(corrected)
