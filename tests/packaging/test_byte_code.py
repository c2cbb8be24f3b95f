"""With byte code of the interpreter that runs them, the handlers' imports compile nothing."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlock.cdk.service import asset as asset_module
from fairlock.cdk.service.asset import add_byte_code
from tests.support.compiling import COUNT_COMPILED

RUNTIME = "python3.13"
HERE = f"python3.{sys.version_info.minor}"
MOST_ZIPPED_BYTES = 1_150_000
ALL = "acquire heartbeat release reap publish pace watch inspect force_release set_limit"
COUNT = (
    COUNT_COMPILED
    + """
import importlib, json, sys
asset, boto3_home, *handlers = sys.argv[1:]
sys.path[:0] = [asset, boto3_home]
for handler in handlers:
    importlib.import_module(f"lambdas.{handler}")
homes = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(json.dumps({
    "imported": sum(home.startswith(asset) for home in homes),
    "compiled": sum(path.startswith(asset) for path in compiled),
}))
"""
)


def imported_and_compiled(
    python: str, asset: Path, boto3_home: Path, handlers: str
) -> dict[str, int]:
    """Counts in a process that writes no byte code, as none can where the asset is read-only."""
    places = [str(asset), str(boto3_home)]
    done = subprocess.run(
        [python, "-I", "-S", "-B", "-c", COUNT, *places, *handlers.split()],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"FAIRLOCK_TABLE_NAME": "locks"},
    )
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.fixture(scope="module")
def compiled(asset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The asset as this interpreter would have it on Lambda."""
    copy = tmp_path_factory.mktemp("compiled") / "asset"
    shutil.copytree(asset, copy)
    add_byte_code(copy, HERE)
    return copy


def test_the_import_of_every_handler_compiles_nothing(compiled: Path, boto3_home: Path) -> None:
    counts = imported_and_compiled(sys.executable, compiled, boto3_home, ALL)
    assert counts["compiled"] == 0
    assert counts["imported"] > 100


def test_without_byte_code_it_compiles_all_that_it_imports(asset: Path, boto3_home: Path) -> None:
    counts = imported_and_compiled(sys.executable, asset, boto3_home, "acquire")
    assert counts["compiled"] == counts["imported"] > 70


def test_every_module_has_byte_code_and_the_zip_stays_small(
    compiled: Path, record_property: Callable[[str, object], None]
) -> None:
    modules = len(list(compiled.rglob("*.py")))
    assert len(list(compiled.rglob("__pycache__/*.pyc"))) == modules
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in compiled.rglob("*.py*"):
            archive.write(path, path.relative_to(compiled))
    size = len(zipped.getvalue())
    record_property("compiled_asset_zipped_bytes", size)
    assert size <= MOST_ZIPPED_BYTES


def test_two_compilations_of_the_asset_are_equal_to_the_byte(
    asset: Path, compiled: Path, tmp_path: Path
) -> None:
    again = tmp_path / "asset"
    shutil.copytree(asset, again)
    asset_module._compiled.cache_clear()  # noqa: SLF001 - as in another process
    add_byte_code(again, HERE)
    paths = [path.relative_to(compiled) for path in compiled.rglob("*.pyc")]
    assert [
        path for path in paths if (again / path).read_bytes() != (compiled / path).read_bytes()
    ] == []


def test_python_of_the_functions_runtime_compiles_nothing_either(
    asset: Path, boto3_home: Path, tmp_path: Path
) -> None:
    """Where it is on the PATH; the others show the same with the interpreter that runs them."""
    python = shutil.which(RUNTIME)
    if (
        python is None
        or subprocess.run([python, "-V"], check=False, capture_output=True, timeout=60).returncode
    ):
        pytest.skip(f"no {RUNTIME} on the PATH")
    copy = tmp_path / "asset"
    shutil.copytree(asset, copy)
    add_byte_code(copy, RUNTIME)
    counts = imported_and_compiled(python, copy, boto3_home, ALL)
    assert counts["compiled"] == 0
    assert counts["imported"] > 100
