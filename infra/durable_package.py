"""Puts a durable function, Fairlock and the SDK into one directory, as `pip install` could."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("fairlock", "aws_durable_execution_sdk_python")
"""What the function imports. boto3 comes with the Lambda runtime."""
_NOT_NEEDED: Final = ("__pycache__", "_lambdas", "aio", "cdk", "cli", "client", "decorator")


def package(source: Path, target: Path) -> Path:
    """Copies a function's source and what it imports to `target`, which does not exist yet."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None, f"{name} is missing: it comes with Fairlock's extra 'durable'"  # noqa: S101 - for synth
        assert spec.submodule_search_locations is not None  # noqa: S101 - same
        [found] = spec.submodule_search_locations
        shutil.copytree(found, target / name, ignore=shutil.ignore_patterns(*_NOT_NEEDED))
    return target
