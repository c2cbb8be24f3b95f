"""The demo's own description names its modules."""

from __future__ import annotations

import re
from pathlib import Path

import examples.demo

FOLDER = Path(examples.demo.__file__).parent


def modules_named_in(text: str | None) -> set[str]:
    """The words in code style of the list."""
    items = re.findall(r"^\* (.*?):", text or "", re.MULTILINE | re.DOTALL)
    return {name for item in items for name in re.findall(r"`(\w+)`", item)}


def test_the_description_names_each_module_and_no_other() -> None:
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__", "__main__"}
    assert modules_named_in(examples.demo.__doc__) == modules
