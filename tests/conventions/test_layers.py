"""The layers point one way: protocol ← store ← handlers; constructs only take names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IO_LIBRARIES = {"boto3", "botocore"}
VOCABULARY = {"leasehold.errors", "leasehold.protocol.model", "leasehold.metrics"}
RULES = {
    "leasehold/protocol": {"leasehold.protocol", *VOCABULARY},
    "leasehold/cdk": {"leasehold.cdk", "leasehold.protocol", "leasehold.wire.rules", *VOCABULARY},
    "lambdas": {"leasehold", "lambdas"},
}


def imports_of(path: Path) -> Iterator[str]:
    """Names of the modules that a file imports when it runs, wherever in it that stands."""
    typing_only = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typing_only |= {id(child) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def is_in(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def files_of(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", RULES)
def test_a_layer_imports_only_what_is_below_it(folder: str) -> None:
    ours = {"leasehold", "lambdas", "infra", "localaws", "examples"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files_of(folder)
        for module in imports_of(path)
        if is_in(module, ours) and not is_in(module, RULES[folder])
    ]
    assert wrong == []


def test_the_protocol_does_no_input_or_output() -> None:
    for path in files_of("leasehold/protocol"):
        assert not IO_LIBRARIES & {module.split(".")[0] for module in imports_of(path)}, path


def test_the_library_needs_no_constructs_and_no_powertools() -> None:
    wrong = [
        f"{path.name} imports {module}"
        for path in files_of("leasehold")
        if "cdk" not in path.parts
        for module in imports_of(path)
        if is_in(module, {"aws_cdk", "constructs", "aws_lambda_powertools", "leasehold.cdk"})
    ]
    assert wrong == []


def test_an_import_that_points_upwards_is_found(tmp_path: Path) -> None:
    upwards = tmp_path / "protocol.py"
    upwards.write_text("def late():\n    from leasehold.store import LockStore\n")
    assert not is_in(next(imports_of(upwards)), RULES["leasehold/protocol"])
