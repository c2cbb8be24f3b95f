"""The embedded AWS with all corrections, and instances that lack single ones: the controls."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.localaws import LocalAws
from testbed.localaws.tests.gates import Gates
from testbed.localaws.workbench import Workbench
from tests.support.checkout import Cache, digest_of

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def localaws_digest() -> str:
    """Of everything that decides how a control of the embedded AWS ends."""
    return digest_of(HERE.parent.rglob("*.py"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember a control that has passed, so that the next run on the same files skips it."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's, untyped here
    if report.when == "call" and report.passed and is_control(item):
        Cache().put(item.funcargs["localaws_digest"], item.nodeid, "passed")  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def only_what_has_not_passed(request: pytest.FixtureRequest, localaws_digest: str) -> None:
    """Skip a control that passed on the same files, unless its folder was asked for."""
    item = request.node
    asked_for = any("localaws" in argument for argument in item.config.args)
    if is_control(item) and not asked_for and Cache().get(localaws_digest, item.nodeid):
        pytest.skip("passed on the same files before")


def is_control(item: pytest.Item) -> bool:
    """Whether a test starts an embedded AWS that lacks a correction."""
    return item.path.parent == HERE and "left_out" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
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
