"""Embedded AWS instances that lack single corrections: the controls."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from localaws import LocalAws
from localaws.workbench import Workbench
from tests.localaws.gates import Gates


@pytest.fixture(scope="session")
def corrected() -> Iterator[Workbench]:
    """The embedded AWS as the demo and all other tests use it, shared by all of a run."""
    with LocalAws() as aws:
        yield Workbench(aws)


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
