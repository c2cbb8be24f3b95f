"""The documents of the repository, and the blocks of code in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
