"""The files of this checkout: its documents, its sources, and what passed on the same files."""

from __future__ import annotations

import ast
import hashlib
import itertools
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"# \w+\.py\n")
"""The first line of a block that is a whole file."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Attributes:
        document: its path from the root.
        line: where its code begins.
        language: the word behind the fence; empty if there is none.
        code: what stands between the fences.
    """

    document: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """What people read who use or change the project."""
    folders = ("docs", "testbed", "examples/app")
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(
                path
                for one in folders
                for path in ROOT.glob(f"{one}/**/*.md")
                if "node_modules" not in path.parts
            ),
        ]
    )


def blocks_of(document: str, text: str) -> list[Block]:
    """The blocks of a text, in their order."""
    return [
        Block(document, text[: found.start()].count("\n") + 2, found[1], found[2])
        for found in FENCE.finditer(text)
    ]


def blocks(*languages: str) -> list[Block]:
    """The blocks of all documents, of these languages if any are given."""
    every = (blocks_of(str(path.relative_to(ROOT)), path.read_text()) for path in documents())
    found = [block for some in every for block in some]
    return [block for block in found if not languages or block.language in languages]


def python_world(block: Block) -> str:
    """Where a Python block is run: the tests in `PYTHON_WORLDS` run those of one world each."""
    if FILE.match(block.code):
        return f"files of {block.document}"
    if "python_dynamodb_lock" in block.code:
        return "before"
    if "LocalAws" in block.code:
        return "embedded"
    if "@durable_execution" in block.code:
        return "durable"
    constructs = ("self,", "(stack,", "fairlock.cdk", "aws_cdk", "LambdaInvoke", "locks.watch(")
    return "cdk" if any(word in block.code for word in constructs) else "client"


PYTHON_WORLDS: Final = {
    "files of docs/testing.md": "tests/packaging/test_wheel.py",
    "embedded": "tests/conventions/test_python_blocks.py",
    "durable": "tests/conventions/test_python_blocks.py",
    "client": "tests/conventions/test_python_blocks.py",
    "before": "tests/conventions/test_python_blocks.py",
    "cdk": "tests/unit/cdk/test_document_blocks.py",
}
"""The test that runs the Python blocks of each world."""


# Results are kept outside the checkout: `~/.cache/fairlock-tests`.
#
# Some suites cost minutes of a processor and read nothing but files of this repository. As long
# as none of these files has changed, their outcome is known. A clean machine has an empty cache,
# and runs everything once.

_OF_CODE: Final = ("examples", "fairlock", "infra", "lambdas", "release", "testbed", "tests")
_OF_THE_PROJECT: Final = ("*.py", "*.toml", "*.json", "*.md")
_GENERATED: Final = {"__pycache__", "node_modules", "cdk.out"}
KEPT: Final = 4_000
"""Entries. Beyond them, the oldest go."""


def files_of_imported_packages() -> list[Path]:
    """Every Python file of this checkout in a folder from which a module has been imported.

    Siblings count as well, because a function may import one of them when it runs.
    """
    loaded = (getattr(module, "__file__", None) for module in [*sys.modules.values()])
    folders = {Path(file).resolve().parent for file in loaded if file}
    ours = (folder for folder in folders if _is_ours(folder))
    return [path for folder in ours for path in folder.glob("*.py")]


def digest_of(files: Iterable[Path], checkout: Path = ROOT) -> str:
    """Digest of these files by name and content, of all pins and of the interpreter."""
    found = hashlib.sha256(sys.version.encode())
    for path in (checkout / "requirements.txt", *sorted(files)):
        found.update(path.relative_to(checkout).as_posix().encode() + b"\0")
        found.update(path.read_bytes() + b"\0")
    return found.hexdigest()


def files_of_code(below: str = "") -> list[Path]:
    """What a test of code can read: the files of packages, tests, examples and the project.

    Args:
        below: of the packages only this folder, such as `testbed/localaws/`.
    """
    folders = [below] if below else _OF_CODE
    packages = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    project = (path for kind in _OF_THE_PROJECT for path in ROOT.glob(kind))
    found = itertools.chain(packages, project)
    return [path for path in found if path.is_file() and _GENERATED.isdisjoint(path.parts)]


class Cache:
    """Results by the digest of what decided them and a name."""

    def __init__(self, folder: Path | None = None) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._folder = folder or Path(home) / "fairlock-tests"

    def get(self, digest: str, name: str) -> Any:  # noqa: ANN401 - what was put there
        """The result, or None."""
        try:
            return pickle.loads(self._path(digest, name).read_bytes())  # noqa: S301 - our own
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def put(self, digest: str, name: str, result: object) -> None:
        """Keep a result. A folder that cannot be written is as good as an empty one."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Renamed when it is whole: another process may read it at any moment.
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(pickle.dumps(result))
            Path(file.name).replace(self._path(digest, name))
            self._forget_oldest()
        except OSError:
            return

    def _path(self, digest: str, name: str) -> Path:
        return self._folder / hashlib.sha256(f"{digest}\0{name}".encode()).hexdigest()

    def _forget_oldest(self) -> None:
        entries = [*self._folder.iterdir()]
        if len(entries) > KEPT:
            for path in sorted(entries, key=lambda path: path.stat().st_mtime)[: KEPT // 4]:
                path.unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    return folder.is_relative_to(ROOT) and ".venv" not in folder.relative_to(ROOT).parts


# The import statements of source files, read without running them.


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


COUNT_COMPILED: Final = """
from importlib.machinery import SourceFileLoader
compiled, to_code = [], SourceFileLoader.source_to_code
def counted(loader, data, path, **options):
    compiled.append(path)
    return to_code(loader, data, path, **options)
SourceFileLoader.source_to_code = counted
"""
"""A beginning of a program that counts the sources which its imports compile."""
