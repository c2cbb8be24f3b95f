"""The import statements of source files, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One import statement."""

    importer: str
    imported: str
    for_types_only: bool

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}" + " (types)" * self.for_types_only


def module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module: str, path: Path, modules: Collection[str]) -> Iterator[Import]:
    """All imports of a file, wherever in it they stand."""
    for node, for_types_only in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else str(node.module) for name in inner]
        else:
            continue
        yield from (Import(module, name, for_types_only) for name in names)


def _statements(parent: ast.AST, *, for_types_only: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All statements below, and whether they stand under `if TYPE_CHECKING`; no expressions."""
    only = for_types_only or (isinstance(parent, ast.If) and _is_for_types_only(parent.test))
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child, only
            yield from _statements(child, for_types_only=only)


def _is_for_types_only(test: ast.expr) -> bool:
    """`TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return "TYPE_CHECKING" in {getattr(test, "id", None), getattr(test, "attr", None)}
