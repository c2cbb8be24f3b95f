"""What the documents name exists: files, modules, names, make targets, figures that are counted."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.core
import typer.main

import fairlock.cli.app
import fairlock.errors
import testbed.localaws.corrections
from fairlock import AsyncLockClient, Lock, LockClient
from fairlock.cdk import LockService
from tests.support.checkout import FENCE, ROOT, documents

OURS = ("fairlock", "lambdas", "infra", "testbed", "examples", "bench", "tests")
LINK = re.compile(r"\]\((?!https?://)([^)#]*)(?:#([\w-]+))?\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join((*OURS, 'docs'))})(?:/[\w.-]+)+/?|[\w/.-]+\.(?:py|md)")
DOTTED = re.compile(rf"(?:{'|'.join(OURS)})(?:\.\w+)+")
MEMBER = re.compile(r"(?<![\w.])(locks?)\.(\w+)")
BARE_FILES = re.compile(r"A file without a folder is in\s+`([\w/]+)/`")
WORD = re.compile(r"[A-Za-z_]\w{3,}")
OTHERS = "docs/migration.md"
"""The document that names other people's classes."""
FOREIGN = {
    *(
        "Decrypt",
        "GenerateDataKey",
        "GetRecords",
        "ItemSelector",
        "MaxConcurrency",
        "KmsAccessDeniedException",
        "LeadingKeys",
    ),  # of AWS
    *("InvokeFunction", "DefinitionSubstitutions", "waitForTaskToken", "TimeoutSeconds"),  # of AWS
    *("aws_cloudformation_stack", "aws_ssm_parameter", "templatefile", "terraform"),  # of Terraform
    *("binary", "flock", "completion"),  # of the AWS CLI, of util-linux, of typer
    *("Billing", "OneChargePerCustomer", "tenant", "other_lock", "edition", "edition_id"),
    *("LocksProd", "version_id"),  # a stack of an example; made from `version`
}
"""What documents have in code style and our code does not: names of others, and of examples."""
OLD_NAME = "lease" + "hold"
"""The project's name before; `test_files.py` says where it may stand."""
WRITES = "acquire_permit release_permit take_over_permit join_queue serve_waiter give_up"
MEMBERS = {"lock": (Lock,), "locks": (LockClient, AsyncLockClient, LockService)}
"""What a document calls `lock` and `locks`."""


def prose(text: str) -> str:
    """A document without its examples."""
    return FENCE.sub("", text)


def missing_links(path: Path, text: str) -> Iterator[str]:
    for target, anchor in LINK.findall(prose(text)):
        there = (path.parent / target) if target else path
        if not there.exists():
            yield target
        elif anchor and anchor not in anchors(there.read_text()):
            yield f"{target}#{anchor}"


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def missing_paths(path: Path, text: str) -> Iterator[str]:
    """Paths in code style: from the root, from the document, or from the folder it says."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        said = BARE_FILES.search(section)
        for code in CODE.findall(re.sub(r"\[`[^`]+`\]\(", "(", prose(section))):
            named = code.split(":")[0]
            if not PATH.fullmatch(named) or "*" in named:
                continue
            bases = [ROOT, path.parent, ROOT / "tests", ROOT / "fairlock"]
            bases += [ROOT / said[1]] if said else []
            if not any((base / named).exists() for base in bases):
                yield named


def missing_names(text: str) -> Iterator[str]:
    """Dotted names of ours in code style. (What examples in Python name, running them shows.)"""
    for code in CODE.findall(prose(text)):
        for dotted in DOTTED.findall(code):
            if not dotted.endswith((".py", ".md")) and not exists(dotted):
                yield dotted
        for owner, member in MEMBER.findall(code):
            if not any(hasattr(kind, member) for kind in MEMBERS[owner]):
                yield f"{owner}.{member}"


def missing_words(text: str, known: set[str]) -> list[str]:
    """Words in code style that stand nowhere in our code."""
    codes = [code for code in CODE.findall(prose(text)) if not PATH.fullmatch(code.split(":")[0])]
    words = {word for code in codes for word in WORD.findall(code)}
    return sorted(word for word in words - known - FOREIGN if OLD_NAME not in word.lower())


def words_of_our_code() -> set[str]:
    folders = [ROOT / folder for folder in OURS if folder != "tests"]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    files += [*ROOT.glob("*.py"), ROOT / "Makefile"]
    return {word for path in files for word in WORD.findall(path.read_text())}


def exists(dotted: str) -> bool:
    try:
        pkgutil.resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_paths_and_names_of_a_document_exist(path: Path) -> None:
    text = path.read_text()
    assert list(missing_links(path, text)) == []
    assert list(missing_paths(path, text)) == []
    assert list(missing_names(text)) == []


def test_words_in_code_style_stand_in_the_code() -> None:
    known = words_of_our_code()
    for path in documents():
        if path != ROOT / OTHERS:
            assert missing_words(path.read_text(), known) == [], path


def test_options_of_the_command_line_exist() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    options = set(re.findall(r"`(--[a-z-]+)", text))
    commands = typer.main.get_command(fairlock.cli.app.app)
    assert isinstance(commands, typer.core.TyperGroup)
    every = (commands, *commands.commands.values())
    known = {option for command in every for given in command.params for option in given.opts}
    assert {"--max-wait", "--stack", "--token"} <= options <= known


def test_make_targets_that_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in documents():
        code = " ".join(CODE.findall(path.read_text()))
        assert set(re.findall(r"\bmake ([a-z-]+)\b", code)) <= targets, path


def test_the_writes_and_calls_that_the_protocol_names_exist() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    defined = {
        node.name
        for path in (ROOT / "fairlock" / "protocol").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    pattern = r"\b[a-z]+(?:_[a-z]+)+\b"
    named = {word for _, block in FENCE.findall(text) for word in re.findall(pattern, block)}
    assert set(WRITES.split()) <= named | set(CODE.findall(text))
    assert named - defined <= {"wait_seq"}


def test_the_page_of_guarantees_counts_the_corrections_of_the_embedded_aws() -> None:
    count = len(testbed.localaws.corrections.NAMES)
    page = " ".join((ROOT / "docs" / "guarantees.md").read_text().split())
    assert f"corrects {count} of its differences" in page
    listed = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "testbed" / "localaws" / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(testbed.localaws.corrections.NAMES)


CUT = re.compile(r"^\|.*\n\n(\|.*)\n(?!\| ?---)", re.MULTILINE)
"""A row behind an empty line, with no head of its own: it is shown as text."""


def test_no_empty_line_cuts_a_table() -> None:
    assert [path for path in documents() if CUT.search(prose(path.read_text()))] == []
    table = "| a | b |\n|---|---|\n| c | d |\n\n"
    assert CUT.findall(f"{table}| e | f |\n\ntext\n") == ["| e | f |"]
    assert CUT.findall(f"{table}| e | f |\n|---|---|\n| g | h |\n") == []


def test_a_name_that_does_not_exist_is_found() -> None:
    planted = (
        "See [it](nowhere.md), [this](README.md#nothing), `fairlock/locks/rota.py`, "
        "`fairlock.locks.rota`, `lock.vacate()`, `ClaimLeft` and `tests/unit/`.\n"
    )
    path = ROOT / "README.md"
    assert list(missing_links(path, planted)) == ["nowhere.md", "README.md#nothing"]
    assert list(missing_paths(path, planted)) == ["fairlock/locks/rota.py"]
    said = "A file without a folder is in `tests/unit/client/`.\n`test_threads.py` `test_gone.py`"
    assert list(missing_paths(path, said)) == ["test_gone.py"]
    assert list(missing_names(planted)) == ["fairlock.locks.rota", "lock.vacate"]
    assert missing_words(planted, {"fairlock", "locks", "lock"}) == ["ClaimLeft", "rota", "vacate"]


# The pages of the site. (`make docs` fails on a document that is not in its menu.)

DOCS = ROOT / "docs"
WRITTEN = {"scale.md", "performance.md"}
"""By `make scale` and `make bench`, whole."""
BUDGETS = {"users": 17_300, "contributors": 4_700}
"""Words of the pages in `docs/`, tables and code included. To add some, take others out."""


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    told = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    assert {"fairlock.LockClient", "fairlock.errors"} <= told
    told |= {f"fairlock.{name}" for name in vars(fairlock.errors)}
    for package in ("", ".cdk", ".durable", ".guarded", ".optimistic", ".testing"):
        module = importlib.import_module(f"fairlock{package}")
        names = {f"{module.__name__}.{name}" for name in module.__all__}
        assert module.__name__ in told or names <= told, names - told


def test_the_picture_of_the_architecture_has_each_function_with_arrows() -> None:
    picture = (DOCS / "images" / "architecture.svg").read_text()
    handlers = {
        file.stem
        for file in (DOCS.parent / "lambdas").glob("*.py")
        if "\ndef handler(" in file.read_text()
    }
    drawn = dict(
        re.findall(r'y="(\d+)" width="150"[^>]*class="fn"/><text[^>]*class="name">(\w+)<', picture)
    )
    assert handlers == set(drawn.values())
    assert picture.count('class="to"') >= 2 * len(handlers)  # one in, one out


def test_the_pages_stay_within_their_budgets_of_words() -> None:
    *_, section = (ROOT / "mkdocs.yml").read_text().partition("\n  - Contributors:\n")
    internal = set(re.findall(r"^ +- .+: (\S+\.md)$", section, re.MULTILINE))
    counted = dict.fromkeys(BUDGETS, 0)
    for page in DOCS.glob("*.md"):
        if page.name not in WRITTEN:
            readers = "contributors" if page.name in internal else "users"
            # What has a letter or a digit; the marks of tables and lists are no words.
            counted[readers] += len(re.findall(r"\S*\w\S*", page.read_text()))
    assert {who: words for who, words in counted.items() if words > BUDGETS[who]} == {}
