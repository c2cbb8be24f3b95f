"""The directory that Lambda gets: what the handlers import, small, pure Python, always the same."""

from __future__ import annotations

import io
import re
import zipfile
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from fairlock.cdk.service import asset as _asset
from fairlock.cdk.service.asset import AssetError, assemble
from tests.packaging.conftest import run
from tests.packaging.test_handlers_alone import CLIENTS
from tests.support.checkout import imports_of, module_of

pytestmark = pytest.mark.cached

MOST_BYTES = 1_500_000
MOST_ZIPPED_BYTES = 400_000


def files_of(asset: Path) -> dict[str, bytes]:
    return {
        path.relative_to(asset).as_posix(): path.read_bytes()
        for path in asset.rglob("*")
        if path.is_file()
    }


LICENSES = {f"licenses/{name}/LICENSE" for name in ("aws-lambda-powertools", "typing-extensions")}


def test_it_has_modules_none_of_them_compiled_and_the_licences(asset: Path) -> None:
    names = set(files_of(asset))
    assert {PurePosixPath(name).suffix for name in names - LICENSES} == {".py"}
    assert names >= LICENSES
    assert {name.split("/")[0] for name in names} == {
        "aws_lambda_powertools",
        "lambdas",
        "fairlock",
        "licenses",
        "typing_extensions.py",
    }


def imported_by(handlers: list[str], modules: dict[str, Path]) -> set[str]:
    """All modules that handlers import, directly or through others, when they run."""
    reached: set[str] = set()
    ahead = list(handlers)
    while ahead:
        module = ahead.pop()
        if module in reached or module not in modules:
            continue
        reached.add(module)
        ahead.append(module.rpartition(".")[0])
        found = imports_of(module, modules[module], modules)
        ahead += [each.imported for each in found if not each.for_types_only]
    return reached


def test_of_this_package_it_has_what_the_handlers_import_and_nothing_else(asset: Path) -> None:
    """A stray module is noticed."""
    paths = [path for top in ("lambdas", "fairlock") for path in (asset / top).rglob("*.py")]
    modules = {module_of(path, asset): path for path in paths}
    modules["fairlock.store.stray"] = asset / "fairlock" / "errors.py"
    handlers = [f"lambdas.{name}" for name in CLIENTS]
    assert set(modules) - imported_by(handlers, modules) == {"fairlock.store.stray"}


def test_it_is_small(asset: Path) -> None:
    files, zipped = files_of(asset), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    assert sum(map(len, files.values())) <= MOST_BYTES
    assert len(zipped.getvalue()) <= MOST_ZIPPED_BYTES


def test_two_assemblies_are_equal_to_the_byte_and_the_second_is_not_written(
    asset: Path, tmp_path: Path
) -> None:
    again = assemble(tmp_path)
    assert (again.name, files_of(again)) == (asset.name, files_of(asset))
    written = (again / "lambdas" / "acquire.py").stat().st_mtime_ns
    assert assemble(tmp_path) == again
    assert (again / "lambdas" / "acquire.py").stat().st_mtime_ns == written


def test_older_versions_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = assemble(tmp_path)
    monkeypatch.setattr(_asset, "DISTRIBUTIONS", ("jmespath",))
    second = assemble(tmp_path)
    assert second != first
    assert list(first.parent.iterdir()) == [second]


def test_lambda_may_read_it_whatever_the_umask(asset: Path) -> None:
    modes = {path.stat().st_mode & 0o777 for path in asset.rglob("*") if path.is_file()}
    assert modes == {0o644}


def test_a_compiled_module_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = [FakeFile("fast/__init__.py"), FakeFile("fast/core.so")]
    wheel = SimpleNamespace(version="3.30.0", files=files)
    monkeypatch.setattr(_asset, "distribution", lambda _name: wheel)
    with pytest.raises(AssetError, match=r"^compiled code cannot go into the asset: fast/core\.so"):
        assemble(tmp_path)
    assert list(tmp_path.iterdir()) == []


LAYER = """
import json
from typing_extensions import Sentinel, TypeIs, assert_never, deprecated, override
print(json.dumps({"home": sys.modules["typing_extensions"].__file__}))
"""


def test_a_layer_finds_all_of_typing_extensions(asset: Path) -> None:
    """Lambda developer guide, "Search path for Python": /var/task comes before /opt/python.

    So the asset's module is what OpenTelemetry of a layer imports, for instance.
    """
    assert run(LAYER, asset) == {"home": str(asset / "typing_extensions.py")}


def test_a_missing_distribution_is_told_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def nothing_installed(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(_asset, "distribution", nothing_installed)
    with pytest.raises(AssetError, match=r"asset needs .* with the extra 'cdk'"):
        assemble(tmp_path)


@pytest.mark.parametrize(
    ("version", "is_told"),
    [("2.43.1", True), ("3.29.0", True), ("3.9.0a1", True), ("3.30.0", False), ("3.100.0", False)],
)
def test_a_powertools_that_the_handlers_cannot_use_is_told_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, *, is_told: bool
) -> None:
    """A lower floor would deploy, and the reaper would fail at its import."""
    name = "aws-lambda-powertools"

    def installed(asked: str) -> SimpleNamespace:
        found = distribution(asked)
        dated = version if asked == name else found.version
        return SimpleNamespace(version=dated, files=found.files)

    monkeypatch.setattr(_asset, "distribution", installed)
    expected = re.escape(f"{name} {version} is too old: install {name}>=3.30")
    told = pytest.raises(AssetError, match=f"^{expected}$") if is_told else nullcontext()
    with told:
        assemble(tmp_path)
    assert [*tmp_path.iterdir()] == [] or not is_told


class FakeFile(PurePosixPath):
    """A file of a distribution, as importlib.metadata lists it."""

    def locate(self) -> Path:
        return Path(__file__)
