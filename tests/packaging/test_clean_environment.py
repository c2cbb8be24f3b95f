"""The wheel beside what it requires and nothing else: no CDK, no Node, no extra."""

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
)
EVERY_NAME = """
import json, sys, importlib
import leasehold
for name in leasehold.__all__:
    getattr(leasehold, name)
for module in ("leasehold.optimistic", "leasehold.guarded"):
    importlib.import_module(module)
told = {}
for module, name in (("leasehold", "AsyncLockClient"), ("leasehold.cdk", "LockService")):
    try:
        getattr(importlib.import_module(module), name)
    except ImportError as error:
        told[name] = str(error)
sys.argv = ["leasehold", "--version"]
from leasehold.cli import main
try:
    main()
except SystemExit as ended:
    told["command"] = str(ended.code)
told["loaded"] = sorted({name.partition(".")[0] for name in sys.modules} & {
    "aws_cdk", "constructs", "jsii", "aiobotocore", "greenlet", "aws_lambda_powertools"
})
print(json.dumps(told))
"""


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


def test_every_name_is_there_and_what_is_optional_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    needed = (*REQUIRED, *FOR_THE_COMMAND)
    printed, told = run(EVERY_NAME, installed, home_of(needed, tmp_path))
    assert "pip install 'leasehold[async]'" in str(told["AsyncLockClient"])
    assert "pip install 'leasehold[cdk]'" in str(told["LockService"])
    assert told["loaded"] == []
    assert (printed, told["command"]) == ("leasehold 0.1.0", "0")
