"""No file names the host of a package registry: a company's mirror serves the same packages.

A host in a lock file or a link sends a download past the mirror that the reader's machine is set up
for, and says where a package is as if there were one such place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conventions.test_old_name import ROOT, tracked_files

HOSTS = tuple(
    f"{name}.{top}"  # in two parts, so that this file names none
    for top, names in {
        "org": "pypi pythonhosted pypi.python anaconda npmjs rubygems proxy.golang packagist nuget "
        "repo.maven.apache repo1.maven deb.debian",
        "com": "npmjs yarnpkg central.sonatype archive.ubuntu",
        "io": "crates jsr registry-1.docker ghcr",
    }.items()
    for name in names.split()
)
_HOST = re.compile("|".join(rf"\b{re.escape(host)}\b" for host in HOSTS), re.IGNORECASE)


def with_a_host(files: Iterable[Path], root: Path) -> list[str]:
    """`file:line: host` for each line of a file that names a host."""
    return [
        f"{path.relative_to(root).as_posix()}:{number}: {found[0]}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if (found := _HOST.search(line))
    ]


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert with_a_host(tracked_files(), ROOT) == []


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_found_in_a_link_a_lock_file_and_a_subdomain(host: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"See\n[it](https://{host}/project/x/).")
    (tmp_path / "package-lock.json").write_text(f'"resolved": "https://files.{host.upper()}/x"')
    (tmp_path / "plain.md").write_text("It is on PyPI, and on npm.")
    found = with_a_host(sorted(tmp_path.iterdir()), tmp_path)
    assert found == [f"package-lock.json:1: {host.upper()}", f"page.md:2: {host}"]
