"""MkDocs hook: documents outside `docs/` become pages, and links fit the place of their page.

GitHub shows the same documents, so their links are relative to the repository. A link to a file
that is no page (source code) leads to the repository's address in pyproject.toml, and is plain text
while that is empty.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT: Final = Path(__file__).resolve().parents[2]
OUTSIDE: Final = {
    "README.md": "project/readme.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CHANGELOG.md": "project/changelog.md",
    "testbed/localaws/README.md": "project/embedded-aws.md",
    "tests/model/README.md": "project/model.md",
}
"""Documents outside `docs/`, and the page that each becomes."""
LOADED: Final = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["']?https?://""")
"""What a browser would fetch from elsewhere when it shows a page."""
FENCED: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
TABS: Final = re.compile(r"^<!-- tabs -->$(.*?)^<!-- /tabs -->$", re.MULTILINE | re.DOTALL)
"""Alternatives: on GitHub they stand one below the other, each below its bold name."""
TAB: Final = re.compile(r"^\*\*(.+?)\*\*$", re.MULTILINE)
WITHOUT_SEARCH: Final = "Contributors"
"""The section of the menu whose pages the search leaves out."""
CALCULATOR: Final = "<!-- calculator -->"
"""Where the page about costs gets its form, which would be dead text on GitHub."""
LINK: Final = re.compile(
    r"!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)(?P<to>[^)#\s]+)(?P<anchor>#[\w-]+)?\)"
)


def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def repository() -> str:
    """The address that pyproject.toml names; empty until the repository is public."""
    address: str = project()["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    return address.rstrip("/")


def on_config(config: Any) -> Any:  # noqa: ANN401 - MkDocs' own types are not in our environment
    """Headings get GitHub's anchors; pages the version, and if public a link to edit them."""
    config.copyright = f"Fairlock {project()['project']['version']}"
    if url := repository():
        # Not `repo_url`: for that the theme asks GitHub for the number of stars, on each page.
        config.edit_uri_template = f"{url}/edit/main/docs/{{path}}"
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Any, *, config: Any) -> Any:  # noqa: ANN401 - same
    """Adds the pages of the documents outside `docs/`."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401 - same
    """Lets the links of a page lead to pages, makes its tabs, and puts figures into the costs."""
    uri = page.file.src_uri
    source = next((path for path, to in OUTSIDE.items() if to == uri), f"docs/{uri}")
    if any(section.title == WITHOUT_SEARCH for section in page.ancestors):
        page.meta["search"] = {"exclude": True}
    if (url := repository()) and uri in OUTSIDE.values():
        page.edit_url = f"{url}/edit/main/{source}"
    parts = FENCED.split(markdown)
    parts[::2] = [
        LINK.sub(lambda link: _relinked(link, source=source, page=uri), part) for part in parts[::2]
    ]
    text = TABS.sub(_tabs, "".join(parts))
    if CALCULATOR in text:
        site = ROOT / "docs" / "site"
        form = (site / "costs.html").read_text()
        form = form.replace(">costs.json<", f">{(site / 'costs.json').read_text()}<")
        text = text.replace(CALCULATOR, form)
    return text


def on_post_page(output: str, *, page: Any, **_: Any) -> str:  # noqa: ANN401 - same
    """Refuses a page that loads something from elsewhere."""
    if found := LOADED.search(output):
        message = f"{page.file.src_uri} loads from elsewhere: {found[0]}"
        raise PluginError(message)
    return output


def _tabs(found: re.Match[str]) -> str:
    _, *rest = TAB.split(found[1])
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return "\n".join(f"/// tab | {name}\n{text.strip()}\n///\n" for name, text in pairs)


def _relinked(link: re.Match[str], *, source: str, page: str) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["to"]))
    to = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if to is None:
        if not (url := repository()):
            return link["text"]
        return f"[{link['text']}]({url}/blob/main/{path}{link['anchor'] or ''})"
    start = link[0][: link.start("to") - link.start()]
    return f"{start}{posixpath.relpath(to, posixpath.dirname(page) or '.')}{link['anchor'] or ''})"
