"""A control: the product with one of its protections switched off, as a change of its source.

A change of the source, and not a patch of a name: a module that has imported the name keeps the
old one, and a condition inside a function has no name. The change is made while the module is
imported, so the checkout stays as it is.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Control:
    """One protection, switched off.

    Attributes:
        name: of the control.
        file: of the product, below `fairlock/`.
        old: what stands there, exactly once.
        new: what stands there instead.
        breaks: the promise that no longer holds. At least one test must fail.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str

    @property
    def path(self) -> Path:
        """The file that is changed."""
        return CHECKOUT / "fairlock" / self.file

    @property
    def module(self) -> str:
        """The module that is changed."""
        return f"fairlock.{self.file.removesuffix('.py').replace('/', '.')}"

    def source(self) -> str:
        """The changed source."""
        before = self.path.read_text()
        found = before.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: {self.file} has {found} places like {self.old!r}; correct `old` and "
                "`new` in tests/controls, and run `python -m tests.controls` with its name"
            )
        return before.replace(self.old, self.new)

    def lines(self) -> range:
        """The lines of the statement in which the change begins, as the file is."""
        before = self.path.read_text()
        at = before[: before.index(self.old)].count("\n") + 1
        at += len(self.old) - len(self.old.lstrip("\n"))
        inside = [
            node
            for node in ast.walk(ast.parse(before))
            if isinstance(node, ast.stmt) and node.lineno <= at <= (node.end_lineno or 0)
        ]
        innermost = max(inside, key=lambda node: node.lineno)
        body = getattr(innermost, "body", None)
        return range(innermost.lineno, body[0].lineno if body else (innermost.end_lineno or at) + 1)

    def apply(self) -> None:
        """Switches the protection off in this process, for good; before the product is imported."""
        if self.module in sys.modules:
            raise RuntimeError(f"{self.module} is imported already")
        sys.meta_path.insert(0, _Finder(self))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, control: Control) -> None:
        self._control = control

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._control.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._control)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, control: Control) -> None:
        super().__init__(fullname, path)
        self._control = control

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - importlib's
        # Not from the bytecode cache, which has the file as it is; nor into it.
        code: Any = compile(self._control.source(), str(self._control.path), "exec")
        assert isinstance(code, CodeType)
        return code


# All controls by their names, and which files of tests catch each: the matrix, kept.
#
# The register is data: `protocol.toml`, `store.toml` and `client.toml`, by the files of the
# product.

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
