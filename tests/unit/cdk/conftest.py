"""Synthesized once per run: a synth costs seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack

from app import build
from fairlock.cdk import LockAlarms, LockMonitoring, LockService
from fairlock.cdk.service.shared_service import SharedLockService
from fairlock.cli import main
from tests.unit.cdk.guard_forms import Cases, forms_of_guards
from tests.unit.cdk.template import Json, made, template_of

NewApp = Callable[..., App]
Asl = Callable[..., tuple[object, str, str]]
"""Runs `fairlock asl` with a task and further words: its status, its output, its errors."""


@pytest.fixture(scope="session")
def handlers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In place of the code of the handlers, which takes long to copy."""
    directory = tmp_path_factory.mktemp("code")
    (directory / "handler.py").write_text("")
    return directory


@pytest.fixture(scope="module", autouse=True)
def code_of_handlers(handlers: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("fairlock.cdk.service.functions.assemble", lambda _parent: handlers)
        yield


@pytest.fixture(scope="session")
def new_app(tmp_path_factory: pytest.TempPathFactory) -> NewApp:
    return lambda **props: App(outdir=str(tmp_path_factory.mktemp("cdk.out")), **props)


@pytest.fixture(scope="session")
def lock_app(new_app: NewApp) -> App:
    """The app of this repository, with no context given."""
    app = new_app()
    build(app)
    return app


@pytest.fixture(scope="session")
def demo_app(new_app: NewApp) -> App:
    """The app of this repository with `-c demo=true`."""
    app = new_app(context={"demo": "true"})
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
    return template_of(lock_stack)


@pytest.fixture(scope="session")
def deployed(lock_template: Json) -> dict[str, Json]:
    """What the stack Fairlock deploys, by short names."""
    return made(lock_template)


@pytest.fixture(scope="session")
def everything_stack(new_app: NewApp) -> Stack:
    """A service with all that can be asked for."""
    stack = Stack(new_app(), "Everything")
    all_of_it: dict[str, Any] = dict.fromkeys(
        ("durable", "administration", "pace", "lifecycle_events"), True
    )
    locks = LockService(stack, "Locks", **all_of_it)
    locks.add_outputs()
    locks.share()
    LockMonitoring(stack, "Monitoring", service=locks, alarms=LockAlarms())
    return stack


@pytest.fixture(scope="session")
def everything(everything_stack: Stack) -> Json:
    return template_of(everything_stack)


@pytest.fixture(scope="session")
def forms_stack(new_app: NewApp) -> Stack:
    cases = Cases(new_app(), "Forms")
    forms_of_guards(cases)
    return cases


@pytest.fixture(scope="session")
def forms(forms_stack: Stack) -> Json:
    """The template with a state machine for each form of the guard."""
    return template_of(forms_stack)


@pytest.fixture(scope="module")
def guards(new_app: NewApp) -> Cases:
    return Cases(new_app(), "Guards")


@pytest.fixture
def app(new_app: NewApp) -> App:
    return new_app()


@pytest.fixture
def own(app: App) -> Stack:
    """A stack of the test's own, to be synthesized."""
    return Stack(app, "Own")


@pytest.fixture
def imported(own: Stack) -> SharedLockService:
    """The service of the stack Fairlock, for the test's own stack: a reference, no resource."""
    return LockService.from_stack(own, "Locks", stack_name="Fairlock")


@pytest.fixture
def asl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Asl:
    def run(task: str | None, *words: str) -> tuple[object, str, str]:
        file = tmp_path / "task.json"
        if task is not None:
            file.write_text(task)
        monkeypatch.setattr(sys, "argv", ["fairlock", "asl", "--task", str(file), *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run
