"""Typical uses pass mypy strict and pyright strict, and wrong ones are reported, by both.

The files are read outside of the checkout, so that Fairlock is what it is for its users: an
installed package, whose types count only because it says that it has some.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

pytestmark = pytest.mark.cached

HERE = Path(__file__).parent
PYRIGHT = {
    "typeCheckingMode": "strict",
    "include": ["*.py"],
    # boto3's stubs are partly untyped unless those of all services are installed.
    "reportUnknownMemberType": False,
}

Errors = dict[str, set[int]]
"""By the name of a file: the lines with errors."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project."""
    home = tmp_path_factory.mktemp("project")
    shutil.copy(HERE / "uses.py", home)
    shutil.copy(HERE / "wrong_uses.txt", home / "wrong_uses.py")
    (home / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return home


def output_of(project: Path, checker: str, *words: str, **environment: str) -> str:
    """What a type checker prints that has found errors."""
    inherited = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    finished = subprocess.run(
        [sys.executable, "-m", checker, *words],
        cwd=project,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished.stderr
    return finished.stdout


def mypy(project: Path) -> Errors:
    options = ("--strict", "--config-file=", "--output=json")
    lines = output_of(project, "mypy", *options, "uses.py", "wrong_uses.py").splitlines()
    found = map(json.loads, lines)
    return by_file((one["file"], one["line"]) for one in found if one["severity"] == "error")


def pyright(project: Path) -> Errors:
    options = ("--outputjson", "--pythonpath", sys.executable)
    output = output_of(project, "pyright", *options, PYRIGHT_PYTHON_GLOBAL_NODE="1")
    return by_file(
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1)
        for one in json.loads(output)["generalDiagnostics"]
        if one["severity"] == "error"
    )


def by_file(found: Iterable[tuple[str, int]]) -> Errors:
    errors: Errors = {"uses.py": set(), "wrong_uses.py": set()}
    for file, line in found:
        errors[file].add(line)
    return errors


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_typical_uses_are_right_and_wrong_uses_are_reported_line_by_line(
    checker: Callable[[Path], Errors], project: Path
) -> None:
    lines = (project / "wrong_uses.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert len(wrong) > 20
    assert checker(project) == {"uses.py": set(), "wrong_uses.py": wrong}
