"""The site of `make docs`: every document is a page of its menu, and its pins have hashes.

`make docs` itself checks the links and anchors between the pages, and that no page loads anything
from elsewhere; it is not a part of `make test`.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import fairlock.errors

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SETTINGS = ROOT / "mkdocs.yml"
TO_DO = "add it to `nav` of mkdocs.yml"
WRITTEN = {"scale.md", "performance.md"}
"""By `make scale` and `make bench`, whole."""
BUDGETS = {"users": 17_300, "contributors": 4_700}
"""Words of the pages in `docs/`, tables and code included. To add some, take others out."""


def pages_of(menu: str) -> list[str]:
    """The pages of a menu, also of its sections."""
    return re.findall(r"^ +- .+: (\S+\.md)$", menu, re.MULTILINE)


def documents_outside() -> dict[str, str]:
    """The documents that the hook makes pages of. (It is not imported: MkDocs is not ours.)"""
    for node in ast.parse((DOCS / "site" / "pages.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "OUTSIDE":
            assert node.value is not None
            return dict(ast.literal_eval(node.value))
    raise AssertionError


def not_in_the_menu(documents: set[str], menu: str) -> set[str]:
    return documents - set(pages_of(menu))


def test_every_document_is_a_page_of_the_menu_and_every_page_a_document() -> None:
    outside = documents_outside()
    assert all((ROOT / source).exists() for source in outside)
    documents = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    menu = SETTINGS.read_text()
    assert not_in_the_menu(documents | set(outside.values()), menu) == set(), TO_DO
    pages = pages_of(menu)
    assert len(pages) == len(set(pages))
    assert set(pages) - documents - set(outside.values()) == set()


def test_a_document_that_is_in_no_menu_is_found() -> None:
    menu = "nav:\n  - Home: index.md\n  - Use:\n      - The guard: guard.md\n"
    assert not_in_the_menu({"index.md", "guard.md", "new.md"}, menu) == {"new.md"}


def constant(name: str) -> str:
    """A text that the hook defines."""
    text = (DOCS / "site" / "pages.py").read_text()
    [found] = re.findall(rf'^{name}: Final = "(.+)"$', text, re.MULTILINE)
    return str(found)


def test_the_search_leaves_out_the_section_that_has_the_internals() -> None:
    section = SETTINGS.read_text().partition(f"\n  - {constant('WITHOUT_SEARCH')}:\n")[2]
    left_out = pages_of(section.partition("\ntheme:")[0])
    assert {"protocol.md", "second-engine.md", "smoke.md", "project/model.md"} <= set(left_out)
    assert not {"guard.md", "client.md", "runbook.md", "functions.md", "costs.md"} & set(left_out)


def test_the_site_loads_its_fonts_and_scripts_from_nowhere_else() -> None:
    settings = SETTINGS.read_text()
    assert "\n  font: false\n" in settings
    own = re.findall(r"(?:polyfills|extra_css): \[(\S+)\]", settings)
    assert len(own) == 2
    assert all((DOCS / path).exists() for path in own)


def test_each_requirement_of_the_site_has_its_hash() -> None:
    pins = re.split(
        r"^(?=\w)", (DOCS / "site" / "requirements.txt").read_text(), flags=re.MULTILINE
    )
    pins = [pin for pin in pins if "==" in pin.split("\n")[0]]
    assert len(pins) > 20
    assert all("--hash=sha256:" in pin for pin in pins)


def not_in_the_reference(package: str, told: set[str]) -> list[str]:
    """The public names of a package that have no entry, and no entry of their module."""
    names = [f"{package}.{name}" for name in importlib.import_module(package).__all__]
    errors = {f"fairlock.{name}" for name in vars(fairlock.errors) if name[0] != "_"}
    known = told | (errors if "fairlock.errors" in told else set())
    return [] if package in told else sorted(set(names) - known)


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    told = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    for package in ("", ".cdk", ".durable", ".guarded", ".optimistic", ".testing"):
        assert not_in_the_reference(f"fairlock{package}", told) == []
    assert not_in_the_reference("fairlock.guarded", {"fairlock.guarded.GuardedWrites"}) == [
        "fairlock.guarded.FenceCondition",
        "fairlock.guarded.condition_check",
        "fairlock.guarded.fence_condition",
    ]


def test_the_runbook_has_each_alarm() -> None:
    alarms = re.findall(r"^\| \*\*(\w+)\*\* \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert len(alarms) == 9
    runbook = (DOCS / "runbook.md").read_text()
    assert [alarm for alarm in alarms if f"**{alarm}**" not in runbook] == []


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


def words_of(text: str) -> int:
    """What has a letter or a digit; the marks of tables and lists are no words."""
    return sum(1 for part in text.split() if re.search(r"\w", part))


def test_the_pages_stay_within_their_budgets_of_words() -> None:
    section = SETTINGS.read_text().partition(f"\n  - {constant('WITHOUT_SEARCH')}:\n")[2]
    internal = set(pages_of(section.partition("\ntheme:")[0]))
    counted = dict.fromkeys(BUDGETS, 0)
    for page in DOCS.glob("*.md"):
        if page.name not in WRITTEN:
            readers = "contributors" if page.name in internal else "users"
            counted[readers] += words_of(page.read_text())
    assert {who: words for who, words in counted.items() if words > BUDGETS[who]} == {}


def test_a_word_is_counted_in_a_table_as_in_a_sentence() -> None:
    assert words_of("| a `b` |\n|---|---|\n* c, d - **e**\n") == 5
