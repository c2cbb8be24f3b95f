"""The code that CDK deploys: with byte code where it can be made, by the same hash everywhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from aws_cdk import App, AssetStaging, Stack, Stage

from fairlock.cdk import LockService
from fairlock.cdk.service import asset as asset_module
from fairlock.cdk.service import functions
from fairlock.cdk.service.asset import add_byte_code
from tests.support.checkout import COUNT_COMPILED
from tests.unit.cdk.template import Json, properties

RUNTIME = f"python3.{sys.version_info.minor}"
"""The runtime whose Python runs these tests, so that they need no other."""
ELSEWHERE = "python3.99"
TAG = f"cpython-3{sys.version_info.minor}"
MODULES = {"one.py": "VALUE = 1\n", "inner/__init__.py": "", "inner/two.py": "VALUE = 2\n"}
BYTE_CODE = {
    f"__pycache__/one.{TAG}.pyc",
    f"inner/__pycache__/__init__.{TAG}.pyc",
    f"inner/__pycache__/two.{TAG}.pyc",
}
EVERY_FILE = {*MODULES, *BYTE_CODE}
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import one; print(one.VALUE)"


@pytest.fixture(scope="module", autouse=True)
def code_of_handlers() -> Iterator[None]:
    """A few modules in place of the handlers, in each cloud assembly."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(functions, "assemble", lambda parent: made(parent / "code"))
        yield


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By the runtime that CDK asks for, the one whose Python is there: this one, or none."""
    found = {functions.RUNTIME.name: RUNTIME}
    monkeypatch.setattr(functions, "add_byte_code", lambda asset, name: add(asset, found[name]))
    return found


def synthesized(outdir: Path, context: Mapping[str, str] | None = None) -> Json:
    AssetStaging.clear_asset_hash_cache()  # As in a new process.
    app = App(outdir=str(outdir), context=context)
    stack = Stack(app, "Only")
    LockService(stack, "Locks", reaper=False)
    template: Json = app.synth().get_stack_by_name("Only").template
    return template


def uploaded(outdir: Path) -> set[str]:
    """The files of the code that CDK uploads."""
    files = json.loads((outdir / "Only.assets.json").read_text())["files"].values()
    [code] = [each["source"]["path"] for each in files if each["source"]["packaging"] == "zip"]
    return set(files_of(outdir / code))


def test_byte_code_is_for_the_functions_runtime_and_the_template_is_the_same_without(
    tmp_path: Path, pythons: dict[str, str]
) -> None:
    with_one = synthesized(tmp_path / "with")
    [runtime] = {each["Runtime"] for each in properties(with_one, "AWS::Lambda::Function")}
    here, pythons[runtime] = pythons[runtime], ELSEWHERE
    assert synthesized(tmp_path / "without") == with_one
    assert uploaded(tmp_path / "with") == EVERY_FILE
    assert uploaded(tmp_path / "without") == {*MODULES}

    pythons[runtime] = here  # It was installed meanwhile.
    assert synthesized(tmp_path / "without") == with_one
    assert uploaded(tmp_path / "without") == EVERY_FILE


@pytest.mark.usefixtures("pythons")
def test_the_hash_is_that_of_the_sources_also_where_cdk_makes_no_copy(tmp_path: Path) -> None:
    """Then the second synthesis hashes a directory that has byte code in it."""
    no_copy = {"aws:cdk:disable-asset-staging": "true"}
    assert synthesized(tmp_path, no_copy) == synthesized(tmp_path, no_copy)
    assert uploaded(tmp_path) == EVERY_FILE


@pytest.mark.usefixtures("pythons")
def test_a_stage_has_byte_code_too(app: App) -> None:
    """Its assets lie beside its own directory."""
    LockService(Stack(Stage(app, "Production"), "Only"), "Locks", reaper=False)
    app.synth()
    [copy] = Path(app.outdir).glob("asset.*")
    assert set(files_of(copy)) == EVERY_FILE


# Byte code is added to a directory as a whole or not at all, and never gets in the way.


def add(asset: Path, runtime: str = RUNTIME) -> None:
    """Adds byte code as a new process does."""
    asset_module._compiled.cache_clear()  # noqa: SLF001 - remembered from other tests
    add_byte_code(asset, runtime)


@pytest.fixture
def asset(tmp_path: Path) -> Path:
    return made(tmp_path / "asset")


def made(home: Path) -> Path:
    for path, text in MODULES.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    return home


def files_of(home: Path) -> dict[str, bytes]:
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file()
    }


def run(home: Path) -> list[str]:
    """The module's value, and how many sources were compiled for it."""
    script = f"{COUNT_COMPILED}{RUN}; print(len(compiled))"
    command = [sys.executable, "-I", "-S", "-B", "-c", script, str(home)]
    return subprocess.check_output(command, text=True, timeout=60).split()


def test_every_module_gets_its_byte_code_for_all_to_read_from_the_python_that_runs(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    before = os.umask(0o077)
    try:
        add(asset)
    finally:
        os.umask(before)
    assert set(files_of(asset)) == EVERY_FILE
    assert {(asset / path).stat().st_mode & 0o777 for path in BYTE_CODE} == {0o644}
    assert list(asset.parent.iterdir()) == [asset]


def test_the_bytes_depend_on_no_path_and_no_setting_of_this_machine(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(asset)
    numbers = {"PYTHONDONTWRITEBYTECODE": 1, "PYTHONOPTIMIZE": 2, "PYTHONHASHSEED": 7}
    paths = {"PYTHONPYCACHEPREFIX": tmp_path / "elsewhere", "PYTHONPATH": tmp_path}
    for name, value in {**numbers, **paths, "SOURCE_DATE_EPOCH": 0}.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "compileall.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "other place").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other place"))
    other = made(tmp_path / "with spaces" / "asset")
    add(other)
    assert files_of(other) == files_of(asset)
    assert b"/var/task/inner/two.py" in (asset / f"inner/__pycache__/two.{TAG}.pyc").read_bytes()


def test_byte_code_is_used_if_its_source_has_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a source whose time the zip has set, and of one that someone has changed on Lambda."""
    *command, _ = asset_module._COMPILE  # noqa: SLF001 - what the controls change
    for mode, touched, changed in (
        (None, ["1", "0"], ["3", "1"]),
        ("timestamp", ["1", "1"], ["3", "1"]),  # The control: it goes by the time.
        ("unchecked-hash", ["1", "0"], ["1", "0"]),  # The control: it checks nothing.
    ):
        if mode is not None:
            monkeypatch.setattr(asset_module, "_COMPILE", (*command, mode))
        asset = made(tmp_path / str(mode))
        add(asset)
        for text, found in (("VALUE = 1\n", touched), ("VALUE = 3\n", changed)):
            (asset / "one.py").write_text(text)
            os.utime(asset / "one.py", (315_532_800, 315_532_800))
            assert run(asset) == found, mode


def test_a_module_that_the_runtime_cannot_compile_leaves_sources_only(asset: Path) -> None:
    (asset / "newer.py").write_text("a newer syntax\n")
    before = files_of(asset)
    add(asset)
    assert files_of(asset) == before
    (asset / "newer.py").unlink()
    add(asset)
    assert set(files_of(asset)) == EVERY_FILE


def executable(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


LAUNCHER = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
NO_PYTHON_399 = {
    "launcher without that Python": "#!/bin/sh\necho 'not found' >&2\nexit 127\n",
    "another Python": LAUNCHER,
    "prints garbage": "#!/bin/sh\necho Python 3.99\n",
    "is no program": "\x7fELF garbage",
    "hangs": "#!/bin/sh\nexec sleep 60\n",
}


def test_what_only_calls_itself_the_runtimes_python_leaves_sources_only(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, programs = files_of(asset), tmp_path / "bin"
    (programs / "directory" / ELSEWHERE).mkdir(parents=True)
    for kind, text in NO_PYTHON_399.items():
        executable(programs / kind, ELSEWHERE, text)
    for kind in ("none", "directory", *NO_PYTHON_399):
        monkeypatch.setenv("PATH", f"{programs / kind}:/usr/bin:/bin")
        monkeypatch.setattr(asset_module, "_MOST_SECONDS", 0.2 if kind == "hangs" else 30)
        add(asset, ELSEWHERE)
        assert files_of(asset) == before, kind


def test_the_runtimes_python_is_found_on_the_path_if_another_one_runs(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SimpleNamespace(implementation=SimpleNamespace(cache_tag="pypy311"), executable="none")
    monkeypatch.setattr(asset_module, "sys", other)
    executable(tmp_path / "bin", RUNTIME, LAUNCHER)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    add(asset)
    assert set(files_of(asset)) == EVERY_FILE


def test_an_asset_that_cannot_be_written_stays_as_it_is(asset: Path) -> None:
    (asset / "__pycache__").write_text("no directory")
    before = files_of(asset)
    add(asset)
    left = files_of(asset)
    assert {path: left[path] for path in before} == before


class Killed(BaseException):
    """The process ends here."""


def test_a_process_that_dies_while_it_writes_leaves_whole_files_and_the_next_one_the_rest(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = made(tmp_path / "expected")
    add(expected)
    written: list[Path] = []

    def replace(source: Path, target: Path) -> None:
        if len(written) == len(MODULES) + 1:  # All sources for the compiler, and one file.
            raise Killed
        written.append(target)
        shutil.move(source, target)

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", replace)
        with pytest.raises(Killed):
            add(asset)
    left = files_of(asset)
    assert len(left) == len(MODULES) + 1
    assert left.items() <= files_of(expected).items()
    add(asset)
    assert files_of(asset) == files_of(expected)


def test_two_processes_may_add_it_at_once(asset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, others = os.replace, iter([add])

    def after_the_other(source: Path, target: Path) -> None:
        if asset in target.parents:
            for other in others:
                other(asset)
        replace(source, target)

    monkeypatch.setattr("os.replace", after_the_other)
    add(asset)
    assert list(others) == []
    assert set(files_of(asset)) == EVERY_FILE
    assert run(asset) == ["1", "0"]


def test_byte_code_that_is_there_is_not_made_again_and_that_of_the_same_sources_once(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(asset)
    add_byte_code(made(tmp_path / "again"), RUNTIME)
    assert asset_module._compiled.cache_info().misses == 1  # noqa: SLF001
    monkeypatch.setattr(asset_module, "_compiled", None)
    add_byte_code(asset, RUNTIME)
    (asset / f"__pycache__/one.{TAG}.pyc").unlink()
    with pytest.raises(TypeError):
        add_byte_code(asset, RUNTIME)
