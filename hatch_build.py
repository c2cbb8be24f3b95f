"""Where the package's page leads to: its URLs, and absolute links in the README.

A package index shows the README without the repository around it, so relative links lead nowhere
there. `repository` in pyproject.toml is the one place that says where the repository is; the site
(`docs/site/pages.py`) and the command's help read it, too. While it is empty nothing is made up:
the wheel names no URL, and the links stay as they are.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE: Final = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:|#)([^)]+)\)")


class LinksHook(MetadataHookInterface):
    """Called by hatchling for the fields that pyproject.toml names as dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`, and `urls` if the repository's address is known."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        if url := str(self.config["repository"]).rstrip("/"):
            metadata["urls"] = {
                "Repository": url,
                "Documentation": f"{url}/blob/main/docs/index.md",
                "Changelog": f"{url}/blob/main/CHANGELOG.md",
                "Issues": f"{url}/issues",
                "Security": f"{url}/security/policy",
            }
            readme = with_absolute_links(readme, url)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def with_absolute_links(markdown: str, url: str) -> str:
    """Links and pictures of a file in the repository's root, as they are found at its address."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        return f"{picture}[{text}]({url}/{'raw' if picture else 'blob'}/main/{path})"

    return _RELATIVE.sub(absolute, markdown)
