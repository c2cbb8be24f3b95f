"""Imports point one way: each package, the tests' helpers included, imports only what it may.

Every import counts, also one inside a function and one under `TYPE_CHECKING` (marked as such)."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, Import, imports_of, module_of

LAYERS = (
    ("fairlock.text", "fairlock.clock", "fairlock.backoff", "fairlock.names"),
    ("fairlock.errors",),
    ("fairlock.protocol",),
    ("fairlock.wire",),
    ("fairlock.aws",),
    ("fairlock.store",),
    ("fairlock.guarded", "fairlock.optimistic"),
    ("fairlock.client", "fairlock.durable"),
    ("fairlock.aio",),
    ("fairlock.decorator",),
    ("fairlock.cli", "fairlock.testing"),
)
"""The library, lowest layer first. Packages of one layer do not import each other."""

BASE = {*LAYERS[0], *LAYERS[1], *LAYERS[2]}
CORE = {*BASE, *LAYERS[3], *LAYERS[4], *LAYERS[5]}
LIBRARY = {"fairlock", *(package for layer in LAYERS for package in layer)}
PRODUCT = {*LIBRARY, "fairlock.cdk", "lambdas", "infra", "app"}
HELPERS = {"tests.support", "testbed.localaws"}

SUITES = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")} - {"support"}
BESIDE = {
    "bench": {"bench", "tests.histories"},
    "contracts": {"tests.unit"},
    "conventions": {"examples.fenced_sql"},
    "demo": {"examples.demo"},
    "histories": {"tests.property"},
    "packaging": {"release"},
    "simulation": {"tests.model"},
    "smoke": {"tests.e2e"},
    "unit": {"examples.bank", "examples.fenced_sql"},
}
"""What suites import beside the product and the helpers of all tests."""

ALLOWED: dict[str, set[str]] = {
    **{
        package: {below for layer in LAYERS[:rank] for below in layer}
        for rank, layer in enumerate(LAYERS)
        for package in layer
    },
    "fairlock.cli": {
        *(below for layer in LAYERS[:-1] for below in layer),
        "fairlock.cdk",  # `fairlock asl`, if it is installed
    },
    "fairlock.durable": {*BASE, "fairlock.wire"},  # it makes no store
    "fairlock": LIBRARY - {*LAYERS[-1]},
    "fairlock.__main__": {"fairlock.cli"},
    "fairlock.cdk": {*BASE, "fairlock.wire"},
    "lambdas": CORE,
    "infra": {"fairlock.cdk", "fairlock.errors"},
    "app": {"infra"},
    "testbed.localaws": set(),
    "examples.app": {"fairlock", "fairlock.cdk", "fairlock.testing"},
    "examples.bank": {"fairlock", "fairlock.optimistic", "testbed.localaws"},
    "examples.durable_billing": {"infra", "fairlock.cdk", "fairlock.durable", "testbed.localaws"},
    "examples.client_metrics": {"fairlock"},
    "examples.demo": {"fairlock", "fairlock.durable", "fairlock.text", "testbed.localaws"},
    "examples.other_tools": set(),
    "examples.fenced_sql": {"fairlock", "testbed.localaws"},
    "bench": {
        *(*PRODUCT, *HELPERS, "testbed.second_engine"),
        *("tests.e2e", "tests.histories"),
    },
    "release": set(),
    "testbed.conformance": {"testbed.localaws"},
    "testbed.second_engine": {"fairlock.cdk", *HELPERS, "tests.e2e"},
    "testbed.conformance.tests": {"testbed.conformance"},
    "testbed.localaws.tests": HELPERS,
    "testbed.second_engine.tests": {"testbed.second_engine"},
    "tests": HELPERS,
    "tests.support": {*CORE, "fairlock.client", "fairlock.testing"},
    **{f"tests.{suite}": {*PRODUCT, *HELPERS, *BESIDE.get(suite, ())} for suite in SUITES},
}


def sources(root: Path) -> dict[str, Path]:
    """Every module of the repository by its name."""
    folders = {package.split(".")[0] for package in ALLOWED}
    files = [path for folder in folders for path in (root / folder).rglob("*.py")]
    return {module_of(path, root): path for path in [*files, *root.glob("app.py")]}


@cache
def package_of(module: str) -> str | None:
    """The package of the rules that a module belongs to."""
    ours = [name for name in ALLOWED if module == name or module.startswith(f"{name}.")]
    return max(ours, key=len, default=None)


def forbidden(imports: list[Import]) -> list[str]:
    """The imports between packages that no rule allows."""
    wrong = []
    for each in imports:
        importer, imported = package_of(each.importer), package_of(each.imported)
        if importer and imported and importer != imported and imported not in ALLOWED[importer]:
            wrong.append(str(each))
    return wrong


def cycle(imports: list[Import]) -> list[str]:
    """Modules that import each other in a circle, or nothing."""
    graph: dict[str, set[str]] = {}
    for each in imports:
        if each.importer != each.imported:
            graph.setdefault(each.importer, set()).add(each.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    return sources(ROOT)


@pytest.fixture(scope="module")
def imports(modules: dict[str, Path]) -> list[Import]:
    return [found for name, path in modules.items() for found in imports_of(name, path, modules)]


def test_every_module_belongs_to_a_package_with_a_rule(modules: dict[str, Path]) -> None:
    without_rule = {module for module in modules if package_of(module) in {None, "fairlock"}}
    assert without_rule <= {"fairlock", "examples", "testbed"}
    assert {package_of(module) for module in modules} >= set(ALLOWED), "a rule without a package"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_imports_only_what_it_may(imports: list[Import], package: str) -> None:
    own = [each for each in imports if package_of(each.importer) == package]
    assert forbidden(own) == []


def test_no_modules_import_each_other_in_a_circle(imports: list[Import]) -> None:
    assert cycle(imports) == []


@pytest.mark.parametrize(
    ("packages", "never"),
    [
        ({"fairlock.protocol"}, {"boto3", "botocore"}),
        (LIBRARY, {"aws_cdk", "constructs", "aws_lambda_powertools"}),
    ],
    ids=["the protocol does no input or output", "the library needs no constructs"],
)
def test_a_package_needs_none_of_these(
    imports: list[Import], packages: set[str], never: set[str]
) -> None:
    own = (each for each in imports if package_of(each.importer) in packages)
    assert [str(each) for each in own if each.imported.split(".")[0] in never] == []


UPWARD = "def late():\n    from fairlock.store import acquire\n"
TYPES = "if TYPE_CHECKING:\n    from fairlock.client.lock import Lock\n"


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("fairlock/protocol/late.py", UPWARD, "fairlock.protocol.late imports fairlock.store"),
        (
            "fairlock/store/types.py",
            TYPES,
            "fairlock.store.types imports fairlock.client.lock (types)",
        ),
        ("tests/model/one.py", "import tests.e2e.two\n", "tests.model.one imports tests.e2e.two"),
        ("testbed/localaws/x.py", "import fairlock\n", "testbed.localaws.x imports fairlock"),
    ],
)
def test_an_import_that_points_upwards_is_found(
    tmp_path: Path, name: str, source: str, expected: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(source)
    modules = sources(tmp_path)
    [(module, _)] = modules.items()
    assert forbidden(list(imports_of(module, path, modules))) == [expected]


def test_a_circle_is_found() -> None:
    circle = [Import("a", "b", for_types_only=False), Import("b", "a", for_types_only=True)]
    assert set(cycle(circle)) == {"a", "b"}


# What tests start can be interrupted, however the run was started.

SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"


def test_a_process_that_a_test_starts_ends_on_sigint() -> None:
    """Also in `nohup make test &`, where the run itself begins with SIGINT ignored."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == -signal.SIGINT
