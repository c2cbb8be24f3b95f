"""A directory with a few distributions, and programs that find nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

REQUIRED = ("boto3", "botocore", "jmespath", "s3transfer", "python-dateutil", "six", "urllib3")
FOR_THE_COMMAND = (
    *("typer", "rich", "shellingham", "click", "markdown-it-py", "mdurl", "pygments"),
    *("annotated-doc", "typing-extensions"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection"),  # of typer
)


def home_of(names: Iterable[str], home: Path) -> Path:
    """A directory as site-packages is with these distributions."""
    for name in names:
        try:
            found = distribution(name)
        except ModuleNotFoundError:
            continue
        tops = {file.parts[0] for file in found.files or [] if file.parts[0] != ".."}
        for top in tops - {"__pycache__"}:
            if not (home / top).exists():
                (home / top).symlink_to(Path(str(found.locate_file(top))))
    return home


def run(script: str, *places: Path) -> tuple[str, dict[str, object]]:
    """What a script prints, and the JSON of its last line."""
    paths = [str(place) for place in places]
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path[:0] = {paths}\n{script}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    *printed, last = finished.stdout.splitlines()
    return "\n".join(printed), json.loads(last)
