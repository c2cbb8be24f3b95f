"""Synthesized once per run: a synth costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from app import build
from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.service.asset import assemble
from tests.unit.cdk.guard_forms import GuardFactory, build_forms

Json = dict[str, Any]


@pytest.fixture(scope="session")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assemble(tmp_path_factory.mktemp("asset"))


@pytest.fixture(scope="module", autouse=True)
def one_code_asset(assembled: Path) -> Iterator[None]:
    """The code of the handlers is read and copied once, for the services of all stacks."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("fairlock.cdk.service.functions.assemble", lambda _parent: assembled)
        yield


@pytest.fixture(scope="session")
def lock_app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The app of this repository, with no context given."""
    app = App(outdir=str(tmp_path_factory.mktemp("cdk.out")))
    build(app)
    return app


@pytest.fixture(scope="session")
def demo_app(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The app of this repository with `-c demo=true`."""
    app = App(outdir=str(tmp_path_factory.mktemp("cdk.out")), context={"demo": "true"})
    build(app)
    app.synth()
    return app


@pytest.fixture(scope="session")
def lock_stack(lock_app: App) -> Stack:
    stack = lock_app.node.find_child("Fairlock")
    assert isinstance(stack, Stack)
    return stack


@pytest.fixture(scope="session")
def lock_template(lock_stack: Stack) -> Json:
    return dict(Template.from_stack(lock_stack).to_json())


@pytest.fixture(scope="session")
def everything_stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A service with all that can be asked for."""
    stack = Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "Everything")
    all_of_it: dict[str, Any] = dict.fromkeys(
        ("durable", "administration", "pace", "lifecycle_events"), True
    )
    locks = LockService(stack, "Locks", **all_of_it)
    locks.add_outputs()
    LockMonitoring(stack, "Monitoring", service=locks, alarms=LockAlarms())
    return stack


@pytest.fixture(scope="session")
def everything(everything_stack: Stack) -> Json:
    return dict(Template.from_stack(everything_stack).to_json())


@pytest.fixture(scope="session")
def forms_stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    stack = Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "Forms")
    build_forms(stack)
    return stack


@pytest.fixture(scope="session")
def forms(forms_stack: Stack) -> Json:
    """The template with a state machine for each form of the guard."""
    return dict(Template.from_stack(forms_stack).to_json())


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A stack for constructs that are examined one by one."""
    return Stack(App(outdir=str(tmp_path_factory.mktemp("cdk.out"))), "Single")


@pytest.fixture(scope="module")
def guards(stack: Stack) -> GuardFactory:
    return GuardFactory(stack)
