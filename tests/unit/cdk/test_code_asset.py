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
from typing import Any

import pytest
from aws_cdk import App, AssetStaging, Stack, Stage

from fairlock.cdk import LockService
from fairlock.cdk.service import asset as asset_module
from fairlock.cdk.service import functions
from fairlock.cdk.service.asset import add_byte_code
from tests.support.checkout import COUNT_COMPILED

HERE = f"python3.{sys.version_info.minor}"
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def one_code_asset() -> None:
    """Each service assembles its own here."""


class Pythons:
    """Replaces what is on a machine: the runtime's Python, or none."""

    def __init__(self) -> None:
        self.has_one = True
        self.asked_for: set[str] = set()

    def add_byte_code(self, asset: Path, runtime: str) -> None:
        self.asked_for.add(runtime)
        if self.has_one:
            add_byte_code(asset, HERE)


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> Pythons:
    made = Pythons()
    monkeypatch.setattr(functions, "add_byte_code", made.add_byte_code)
    return made


def synthesized(outdir: Path, context: Mapping[str, str] | None = None) -> Json:
    AssetStaging.clear_asset_hash_cache()  # As in a new process.
    app = App(outdir=str(outdir), context=context)
    stack = Stack(app, "Only")
    LockService(stack, "Locks")
    template: Json = app.synth().get_stack_by_name("Only").template
    return template


def modules_and_byte_code(outdir: Path) -> tuple[int, int]:
    """In what CDK uploads."""
    manifest = json.loads((outdir / "Only.assets.json").read_text())
    [code] = [
        outdir / file["source"]["path"]
        for file in manifest["files"].values()
        if file["source"]["packaging"] == "zip"
    ]
    return len(list(code.rglob("*.py"))), len(list(code.rglob("__pycache__/*.pyc")))


def test_byte_code_is_for_the_functions_runtime_and_the_template_is_the_same_without(
    tmp_path: Path, pythons: Pythons
) -> None:
    with_one = synthesized(tmp_path / "with")
    resources = with_one["Resources"].values()
    own = [each["Properties"] for each in resources if each["Type"] == "AWS::Lambda::Function"]
    assert {each["Runtime"] for each in own} == pythons.asked_for == {functions.RUNTIME.name}
    pythons.has_one = False
    without = synthesized(tmp_path / "without")
    assert with_one == without
    modules, compiled = modules_and_byte_code(tmp_path / "with")
    assert compiled == modules > 100
    assert modules_and_byte_code(tmp_path / "without") == (modules, 0)

    pythons.has_one = True  # It was installed meanwhile.
    assert synthesized(tmp_path / "without") == without
    assert modules_and_byte_code(tmp_path / "without") == (modules, modules)


@pytest.mark.usefixtures("pythons")
def test_the_hash_is_that_of_the_sources_also_where_cdk_makes_no_copy(tmp_path: Path) -> None:
    """Then the second synthesis hashes a directory that has byte code in it."""
    no_copy = {"aws:cdk:disable-asset-staging": "true"}
    assert synthesized(tmp_path, no_copy) == synthesized(tmp_path, no_copy)
    modules, compiled = modules_and_byte_code(tmp_path)
    assert compiled == modules


@pytest.mark.usefixtures("pythons")
def test_a_stage_has_byte_code_too(tmp_path: Path) -> None:
    """Its assets lie beside its own directory."""
    app = App(outdir=str(tmp_path))
    stage = Stage(app, "Production")
    LockService(Stack(stage, "Only"), "Locks")
    app.synth()
    [copy] = tmp_path.glob("asset.*")
    assert len(list(copy.rglob("*.pyc"))) == len(list(copy.rglob("*.py"))) > 100


# Byte code is added to a directory as a whole or not at all, and never gets in the way.

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
RUN = "import sys; sys.path.insert(0, sys.argv[1]); import one; print(one.VALUE)"


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    asset_module._compiled.cache_clear()  # noqa: SLF001 - as in a new process
    yield
    asset_module._compiled.cache_clear()  # noqa: SLF001


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


def names_of(home: Path) -> set[str]:
    return set(files_of(home))


def run(home: Path) -> tuple[str, int]:
    """The module's value, and how many sources were compiled for it."""
    script = f"{COUNT_COMPILED}{RUN}; print(len(compiled))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script, str(home)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    value, compiled = done.stdout.split()
    return value, int(compiled)


def test_the_python_that_runs_is_taken_if_it_is_the_runtimes(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    add_byte_code(asset, RUNTIME)
    assert names_of(asset) == {*MODULES, *BYTE_CODE}


def test_every_module_gets_its_byte_code_for_all_to_read(asset: Path) -> None:
    before = os.umask(0o077)
    try:
        add_byte_code(asset, RUNTIME)
    finally:
        os.umask(before)
    assert names_of(asset) == {*MODULES, *BYTE_CODE}
    assert {(asset / path).stat().st_mode & 0o777 for path in BYTE_CODE} == {0o644}
    assert list(asset.parent.iterdir()) == [asset]


def test_the_bytes_depend_on_no_path_and_no_setting_of_this_machine(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_byte_code(asset, RUNTIME)
    asset_module._compiled.cache_clear()  # noqa: SLF001 - compiled again
    for name, value in {
        "PYTHONPYCACHEPREFIX": str(tmp_path / "elsewhere"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONOPTIMIZE": "2",
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(tmp_path),
        "SOURCE_DATE_EPOCH": "0",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "compileall.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "other place").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "other place"))
    other = made(tmp_path / "with spaces" / "asset")
    add_byte_code(other, RUNTIME)
    assert files_of(other) == files_of(asset)
    assert b"/var/task/inner/two.py" in (asset / f"inner/__pycache__/two.{TAG}.pyc").read_bytes()


def invalidated_by(mode: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte code of another kind than the product's; of that, if no mode is given."""
    if mode is not None:
        monkeypatch.setattr(asset_module, "_COMPILE", (*asset_module._COMPILE[:-1], mode))  # noqa: SLF001


@pytest.mark.parametrize(
    ("mode", "value", "compiled"),
    [
        pytest.param(None, "1", 0, id="as it is"),
        pytest.param("timestamp", "1", 1, id="without the protection"),
    ],
)
def test_byte_code_is_used_whatever_time_the_zip_gives_the_sources(
    asset: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None, value: str, compiled: int
) -> None:
    invalidated_by(mode, monkeypatch)
    add_byte_code(asset, RUNTIME)
    os.utime(asset / "one.py", (315_532_800, 315_532_800))
    assert run(asset) == (value, compiled)


@pytest.mark.parametrize(
    ("mode", "value", "compiled"),
    [
        pytest.param(None, "3", 1, id="as it is"),
        pytest.param("unchecked-hash", "1", 0, id="without the protection"),
    ],
)
def test_a_source_that_someone_changed_on_lambda_is_what_runs(
    asset: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None, value: str, compiled: int
) -> None:
    invalidated_by(mode, monkeypatch)
    add_byte_code(asset, RUNTIME)
    (asset / "one.py").write_text("VALUE = 3\n")
    assert run(asset) == (value, compiled)


def test_a_module_that_the_runtime_cannot_compile_leaves_sources_only(asset: Path) -> None:
    (asset / "newer.py").write_text("a newer syntax\n")
    before = files_of(asset)
    add_byte_code(asset, RUNTIME)
    assert files_of(asset) == before
    (asset / "newer.py").unlink()
    add_byte_code(asset, RUNTIME)
    assert names_of(asset) == {*MODULES, *BYTE_CODE}


def executable(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    (directory / name).chmod(0o755)


LAUNCHER = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
NO_PYTHON_399 = {
    "none": None,
    "launcher without that Python": "#!/bin/sh\necho 'not found' >&2\nexit 127\n",
    "another Python": LAUNCHER,
    "prints garbage": "#!/bin/sh\necho Python 3.99\n",
    "is no program": "\x7fELF garbage",
    "hangs": "#!/bin/sh\nexec sleep 60\n",
}


@pytest.mark.parametrize("program", NO_PYTHON_399)
def test_what_only_calls_itself_the_runtimes_python_leaves_sources_only(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    text = NO_PYTHON_399[program]
    if text is not None:
        executable(tmp_path / "bin", ELSEWHERE, text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(asset_module, "_MOST_SECONDS", 0.2 if program == "hangs" else 30)
    before = files_of(asset)
    add_byte_code(asset, ELSEWHERE)
    assert files_of(asset) == before
    assert not list(asset.rglob("__pycache__"))


def test_a_directory_of_that_name_is_no_python(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / ELSEWHERE).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    add_byte_code(asset, ELSEWHERE)
    assert names_of(asset) == set(MODULES)


def test_the_runtimes_python_is_found_on_the_path_if_another_one_runs(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SimpleNamespace(cache_tag="pypy311")
    monkeypatch.setattr(
        asset_module, "sys", SimpleNamespace(implementation=other, executable="none")
    )
    executable(tmp_path / "bin", RUNTIME, LAUNCHER)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    add_byte_code(asset, RUNTIME)
    assert names_of(asset) == {*MODULES, *BYTE_CODE}


def test_an_asset_that_cannot_be_written_stays_as_it_is(asset: Path) -> None:
    (asset / "__pycache__").write_text("no directory")
    before = files_of(asset)
    add_byte_code(asset, RUNTIME)
    left = files_of(asset)
    assert {path: left[path] for path in before} == before


class Killed(BaseException):
    """The process ends here."""


def test_a_process_that_dies_while_it_writes_leaves_whole_files_and_the_next_one_the_rest(
    asset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = made(tmp_path / "expected")
    add_byte_code(expected, RUNTIME)
    written: list[Path] = []

    def replace(source: Path, target: Path) -> None:
        if len(written) == len(MODULES) + 1:  # All sources for the compiler, and one file.
            raise Killed
        written.append(target)
        shutil.move(source, target)

    asset_module._compiled.cache_clear()  # noqa: SLF001
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", replace)
        with pytest.raises(Killed):
            add_byte_code(asset, RUNTIME)
    left = files_of(asset)
    assert len(left) == len(MODULES) + 1
    assert left.items() <= files_of(expected).items()
    add_byte_code(asset, RUNTIME)
    assert files_of(asset) == files_of(expected)


def test_two_processes_may_add_it_at_the_same_time(
    asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, others = os.replace, iter([add_byte_code])

    def after_the_other(source: Path, target: Path) -> None:
        if asset in target.parents:
            for other in others:
                other(asset, RUNTIME)
        replace(source, target)

    monkeypatch.setattr("os.replace", after_the_other)
    add_byte_code(asset, RUNTIME)
    assert list(others) == []
    assert names_of(asset) == {*MODULES, *BYTE_CODE}
    assert run(asset) == ("1", 0)


def test_byte_code_that_is_there_is_not_made_again(
    asset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_byte_code(asset, RUNTIME)
    monkeypatch.setattr(asset_module, "_compiled", None)
    add_byte_code(asset, RUNTIME)
    (asset / f"__pycache__/one.{TAG}.pyc").unlink()
    with pytest.raises(TypeError):
        add_byte_code(asset, RUNTIME)


def test_one_process_compiles_the_same_sources_once(asset: Path, tmp_path: Path) -> None:
    add_byte_code(asset, RUNTIME)
    add_byte_code(made(tmp_path / "again"), RUNTIME)
    assert asset_module._compiled.cache_info().misses == 1  # noqa: SLF001
    (made(tmp_path / "changed") / "one.py").write_text("VALUE = 4\n")
    add_byte_code(tmp_path / "changed", RUNTIME)
    assert asset_module._compiled.cache_info().misses == 2  # noqa: SLF001
    assert run(tmp_path / "changed") == ("4", 0)
