"""The code that CDK deploys: with byte code where it can be made, by the same hash everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, AssetStaging, Stack, Stage

from fairlock.cdk import LockService
from fairlock.cdk.service import functions
from fairlock.cdk.service.asset import add_byte_code

HERE = f"python3.{sys.version_info.minor}"
Json = dict[str, Any]


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


def test_the_template_is_the_same_with_and_without_the_runtimes_python(
    tmp_path: Path, pythons: Pythons
) -> None:
    with_one = synthesized(tmp_path / "with")
    pythons.has_one = False
    without = synthesized(tmp_path / "without")
    assert with_one == without
    modules, compiled = modules_and_byte_code(tmp_path / "with")
    assert compiled == modules > 100
    assert modules_and_byte_code(tmp_path / "without") == (modules, 0)

    pythons.has_one = True  # It was installed meanwhile.
    assert synthesized(tmp_path / "without") == without
    assert modules_and_byte_code(tmp_path / "without") == (modules, modules)


def test_byte_code_is_for_the_runtime_that_the_functions_have(
    tmp_path: Path, pythons: Pythons
) -> None:
    resources = synthesized(tmp_path)["Resources"].values()
    own = [each["Properties"] for each in resources if each["Type"] == "AWS::Lambda::Function"]
    assert {each["Runtime"] for each in own} == pythons.asked_for == {functions.RUNTIME.name}


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
