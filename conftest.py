"""Fixtures for all suites: a clock, lock tables, and the embedded AWS of this process."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.loaders import JSONFileLoader, Loader
from coverage import Coverage
from moto import mock_aws
from xdist.scheduler import LoadScopeScheduling

from fairlock.testing import ManualClock
from testbed.localaws import LocalAws
from tests.support import create_lock_table
from tests.support.checkout import ROOT, Cache, digest_of, files_of_code

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# jsii and the CDK CLI start `node`: the one that is installed beside this interpreter.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Else each synthesis validates its templates, which doubles its time. cfn-lint reads them in tests,
# and what tests/packaging/test_app.py starts validates as for users.
os.environ["CDK_VALIDATION"] = "false"
# What tests start buffers what it prints, as for most users.
os.environ.pop("PYTHONUNBUFFERED", None)
# No other test may use a profile or a table of yours, or fail because your configuration lacks it.
if not os.environ.get("FAIRLOCK_AWS_SMOKE_TEST"):
    os.environ.pop("AWS_PROFILE", None)
    os.environ.pop("FAIRLOCK_TABLE_NAME", None)
    # Who makes a client without credentials would look for some in the network.
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
# The embedded AWS is on this machine, where a proxy of yours would not find it.
_DIRECT = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
os.environ["no_proxy"] = f"{_DIRECT},127.0.0.1" if _DIRECT else "127.0.0.1"


def _read_the_models_of_aws_once() -> None:
    """Every client of a new session would read them from its files: 0.1 s of a test's 0.15 s."""
    load_file, list_services = JSONFileLoader.load_file, Loader.list_available_services

    @cache
    def file(path: str) -> Any:  # noqa: ANN401 - what a JSON file holds
        return load_file(JSONFileLoader(), path)

    @cache
    def services(paths: tuple[str, ...], type_name: str) -> list[str]:
        return list_services(Loader([*paths]), type_name)

    def of_a_loader(self: Loader, type_name: str) -> list[str]:
        return services(tuple(self.search_paths), type_name)

    JSONFileLoader.load_file = staticmethod(file)  # type: ignore[method-assign]
    Loader.list_available_services = of_a_loader  # type: ignore[method-assign]


_read_the_models_of_aws_once()


def pytest_configure() -> None:
    """Let SIGINT end what tests start, as at a terminal, also in `nohup make test &`.

    Shells start background commands with SIGINT ignored, and every child inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Which process of `pytest -n` runs what, and what comes first.


@cache
def suite_of(folder: Path) -> Path | None:
    """The folder above whose `conftest.py` makes something once a session; None without one.

    Such things are dear (a deployment, an installation), so one process runs all that share them.
    """
    if folder in (ROOT, *ROOT.parents):
        return None
    conftest = folder / "conftest.py"
    if conftest.exists() and 'scope="session"' in conftest.read_text():
        return folder
    return suite_of(folder.parent)


class SuiteScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    """Hands out whole suites where tests share something dear, and single files elsewhere."""

    def _split_scope(self, nodeid: str) -> str:
        file = ROOT / nodeid.partition("::")[0]
        return str(suite_of(file.parent) or file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SuiteScheduling:  # noqa: ANN401 - xdist's, untyped
    """For `pytest -n`. (xdist's own groups do not work with pytest 9.2.)"""
    return SuiteScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole suites come first: they are long, and single files fill the time beside them."""
    items.sort(key=lambda item: suite_of(item.path.parent) is None)


def pytest_collection_finish() -> None:
    """What is imported by now stays: a `gc.collect()` that looks through all of it takes 0.25 s."""
    gc.freeze()


# Tests that are marked as `cached`.


def digest_for(item: pytest.Item) -> str:
    """Digest of all files that may decide how a cached test ends; empty for any other test."""
    mark = item.get_closest_marker("cached")
    return digest_of_code(**mark.kwargs) if mark else ""


@cache
def digest_of_code(below: str = "") -> str:
    return digest_of(files_of_code(below))


def has_passed_before(item: pytest.Item) -> bool:
    """Whether `make test` need not run it again. What is asked for runs."""
    is_asked_for = not {*item.config.getini("testpaths")}.issuperset(item.config.args)
    digest = "" if is_asked_for else digest_for(item)
    return bool(digest and Cache().get(digest, item.nodeid) == "passed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if has_passed_before(item):
        pytest.skip("passed on the same files before")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and (digest := digest_for(item)):
        Cache().put(digest, item.nodeid, "passed")
    return report


_traced: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the coverage of each test function by its first case: tracing doubles the time.

    `python -m tests.controls --record` measures every case: it asks which tests run a line.
    """
    tracer, function = Coverage.current(), item.nodeid.partition("[")[0]
    is_recorded = not item.config.pluginmanager.hasplugin("_cov")
    if tracer is None or is_recorded or function not in _traced:
        _traced.add(function)
        return (yield)
    tracer.stop()
    try:
        return (yield)
    finally:
        tracer.start()


def pytest_terminal_summary(terminalreporter: Any) -> None:  # noqa: ANN401 - pytest's, not public
    """Shows what tests have measured (`record_property("figures", …)`)."""
    getreports = terminalreporter.getreports
    reports = [report for end in ("passed", "failed", "skipped") for report in getreports(end)]
    figures = [
        text for report in reports for kind, text in report.user_properties if kind == "figures"
    ]
    if figures:
        terminalreporter.section("figures")
        for text in figures:
            terminalreporter.write_line(text)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def aws() -> Iterator[LocalAws]:
    """The embedded AWS that all suites of this process share; each makes tables of its own."""
    with LocalAws() as aws:
        yield aws


@pytest.fixture
def fresh_dynamodb(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBClient]:
    """A DynamoDB of moto's, with a lock table. For the semantics of single clients only."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("dynamodb")
        create_lock_table(client)
        yield client


@pytest.fixture
def dynamodb(fresh_dynamodb: DynamoDBClient) -> DynamoDBClient:
    return fresh_dynamodb


class BrokenLog(logging.Handler):
    """Its daemon is gone."""

    def emit(self, _record: logging.LogRecord) -> None:
        raise BrokenPipeError


@pytest.fixture
def broken_log() -> Iterator[None]:
    """Each line that Fairlock logs raises."""
    logger, handler = logging.getLogger("fairlock"), BrokenLog()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
