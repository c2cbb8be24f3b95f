"""All controls by their names, and which files of tests catch each: the matrix, kept.

The register is data: `protocol.toml`, `store.toml` and `client.toml`, by the files of the product.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.controls.control import Control

_HERE: Final = Path(__file__).parent
KEPT: Final = _HERE / "caught.json"
"""By control, the files of tests that fail; written by `python -m tests.controls --keep`."""


def read_register() -> Iterator[Control]:
    """Every control, in the order of the files."""
    for path in sorted(_HERE.glob("*.toml")):
        for file, controls in tomllib.loads(path.read_text()).items():
            for fields in controls:
                yield Control(file=file, **fields)


REGISTER: Final[dict[str, Control]] = {control.name: control for control in read_register()}


def caught() -> dict[str, list[str]]:
    """The kept summary."""
    found: dict[str, list[str]] = json.loads(KEPT.read_text())
    return found
