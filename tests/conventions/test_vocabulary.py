"""One word for each thing: the words that were replaced do not come back.

`docs/glossary.md` defines the words that are used. These tests fail on their former synonyms in
public names, in the names of what is stored, sent and measured, and in the text of the documents.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from fairlock.names import MetricName
from tests.support.checkout import ROOT, documents

PACKAGES = ("fairlock", "lambdas", "infra")

OLD_WORDS = {
    "unheard": "undelivered",
    "beats beating": "heartbeat",
    "leaver leavers": "departing holder",
    "vacate vacates vacated": "hand over",
    "rota": "heartbeat schedule",
    "tenure": "local lease",
    "lapse lapses lapsed": "lease expiry",
    "crew": "worker pool",
    "errand errands": "call or options",
    "vicinity": "same account",
}
"""Words of a language of our own, and what to say instead. Ordinary English is free."""
INSTEAD = {word: instead for words, instead in OLD_WORDS.items() for word in words.split()}

BANNED = re.compile(
    r"(?<![A-Za-z_])(?:[Nn]obody|[Ss]omebody|[Aa]new|[Mm]ended|[Ww]hoever|[Tt]hereof|[Ss]tands in"
    r"|[Aa]lso if)(?![A-Za-z_])"
)
"""English that no native writer publishes: say "no one" or the passive, again, is in, even if."""
CODE = ("fairlock", "lambdas", "infra", "testbed", "examples", "bench", "tests")
TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
"""Of Python 3.12 and newer: an f-string has tokens of its own."""
ALLOWED_IN_TEXT = re.compile(
    r"https?://\S+"  # other people's words
    r"|[\w/]+\.py\b",  # the name of a test file is no sentence
    re.IGNORECASE,
)
OLD_PHRASE = re.compile(r"\bput(?:s|ting)?[ _]out|\bclaim_permit|\bgive_back", re.IGNORECASE)
"""To evict, to acquire and to release."""
WHO_AS_SUBJECT = re.compile(r"(?:^|[.:;|*]\s+)Who\s+\w+s\b[^?]*$")
"""A sentence whose subject is "who", and which is no question."""

ONE_MEANING = {
    "claim": ("the record of a workflow's acquisition", "protocol store wire names cdk"),
    "reap": ("what is done for ended executions", "protocol store names cdk lambdas infra"),
    "redrive": ("the restart of an execution", "protocol store aws wire cdk lambdas"),
    "evict": ("taking out a holder whose lease is over", "protocol store client"),
}
"""Words that were used for something else as well; what each means, and the places it is for."""


@cache
def words_of(name: str) -> list[str]:
    """`LeaseExpiry` and `lease_expiry` are made of lease and expiry."""
    parts = re.split(r"[^A-Za-z]+", name)
    words = [re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", part) for part in parts]
    return [word.lower() for part in words for word in part]


def old_words_in(names: Iterable[str]) -> list[str]:
    return sorted(
        f"{name}: say {INSTEAD[w]}" for name in names for w in words_of(name) if w in INSTEAD
    )


def old_words_in_text(text: str) -> list[str]:
    """Each old word of a document, with the number of its line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.findall(r"[A-Za-z]+", ALLOWED_IN_TEXT.sub("", line))
        found += [f"{number}: {w}: say {INSTEAD[w.lower()]}" for w in words if w.lower() in INSTEAD]
        found += [f"{number}: {phrase}" for phrase in OLD_PHRASE.findall(line)]
        found += [f"{number}: {word}" for word in BANNED.findall(line)]
        if WHO_AS_SUBJECT.search(line):
            found.append(f"{number}: Who: say which owner, caller, waiter …")
    return found


def banned_in_code(source: str) -> list[str]:
    """Banned words in comments, docstrings, sentences and the names of tests."""
    if not BANNED.search(source.replace("_", " ")):
        return []
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text, line = token.string, token.start[0]
        if token.type == tokenize.NAME and text.startswith("test_"):
            found += [f"{line}: {word}" for word in BANNED.findall(text.replace("_", " "))]
        is_sentence = token.type in TEXTS and " " in text
        if is_sentence or token.type == tokenize.COMMENT:
            found += [f"{line}: {word}" for word in BANNED.findall(text)]
    return found


def names_in(tree: ast.Module) -> Iterator[str]:
    """What a module names, but for variables; and texts: of attributes, metrics and fields."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.arg(arg=name)
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) if not name.islower():
                yield name
            case ast.Constant(value=str() as text) if text.isidentifier():
                yield text


@cache
def names_of(path: Path) -> frozenset[str]:
    return frozenset(names_in(ast.parse(path.read_text())))


@cache
def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def parts_of(path: Path) -> set[str]:
    return set(path.relative_to(ROOT).with_suffix("").parts)


def test_names_in_the_code_in_the_table_in_metrics_and_on_the_wire_have_no_old_word() -> None:
    names = {name for path in sources() for name in (*names_of(path), *parts_of(path))}
    assert {"fencing_token", "retry_after_seconds", *MetricName} <= names
    assert old_words_in(name for name in names if name[0] != "_") == []


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_no_old_word(path: Path) -> None:
    assert old_words_in_text(path.read_text()) == []


@pytest.mark.parametrize("folder", CODE)
def test_sentences_of_the_code_and_names_of_tests_have_no_banned_word(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    found = {path: banned_in_code(path.read_text()) for path in paths}
    assert {path: words for path, words in found.items() if words} == {}


@pytest.mark.parametrize("word", ONE_MEANING)
def test_a_word_stands_only_where_its_one_meaning_does(word: str) -> None:
    meaning, places = ONE_MEANING[word]
    strangers = [
        f"{path.relative_to(ROOT)}: {name}; {word} means {meaning}"
        for path in sources()
        if not parts_of(path) & set(places.split())
        for name in names_of(path)
        if word in words_of(name)
    ]
    assert strangers == []


def test_the_glossary_defines_each_word_once_and_lease_and_fencing_token_first() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    defined = re.findall(r"^\| \*\*(.+?)\*\*", text, re.MULTILINE)
    assert defined[:2] == ["lease", "fencing token"]
    assert len(set(defined)) == len(defined)


def test_an_old_word_is_found_in_every_kind_of_name() -> None:
    planted = ast.parse(
        "class Crew:\n"
        "    tenure: float = 5.0\n"
        "    def run(self, unheard, *, keep_alive): self.beats = 1\n"
        "LAPSED = 1\n"
        "def run_errand(): ...\n"
    )
    found = {message.split(":")[0] for message in old_words_in(names_in(planted))}
    assert found == {"Crew", "tenure", "unheard", "beats", "LAPSED", "run_errand"}


def test_an_old_word_is_found_in_a_document() -> None:
    text = "A lease lapsed.\nA lock is kept.\n* Who leaves tells.\nIt is put out.\n"
    assert [message.split(":")[0] for message in old_words_in_text(text)] == ["1", "3", "4"]


def test_a_banned_word_is_found_in_comments_docstrings_sentences_and_names_of_tests() -> None:
    planted = (
        '"""Mended here."""\n'
        "x = 1  # stands in for y\n"
        "anew = f'nobody'\n"
        "def test_nobody_waits(): raise ValueError('somebody has it already')\n"
    )
    assert banned_in_code(planted) == ["1: Mended", "2: stands in", "4: nobody", "4: somebody"]
