"""The wheel beside what it requires and nothing else: no CDK, no Node, no extra."""

from __future__ import annotations

from pathlib import Path

from tests.packaging.clean_environment import FOR_THE_COMMAND, REQUIRED, home_of, run

EVERY_NAME = """
import json, sys, importlib
import fairlock
for name in fairlock.__all__:
    getattr(fairlock, name)
for module in ("fairlock.optimistic", "fairlock.guarded"):
    importlib.import_module(module)
told = {}
for module, name in (("fairlock", "AsyncLockClient"), ("fairlock.cdk", "LockService")):
    try:
        getattr(importlib.import_module(module), name)
    except ImportError as error:
        told[name] = str(error)
sys.argv = ["fairlock", "--version"]
from fairlock.cli import main
try:
    main()
except SystemExit as ended:
    told["command"] = str(ended.code)
told["loaded"] = sorted({name.partition(".")[0] for name in sys.modules} & {
    "aws_cdk", "constructs", "jsii", "aiobotocore", "greenlet", "aws_lambda_powertools"
})
print(json.dumps(told))
"""


def test_every_name_is_there_and_what_is_optional_says_what_to_install(
    installed: Path, tmp_path: Path
) -> None:
    needed = (*REQUIRED, *FOR_THE_COMMAND)
    printed, told = run(EVERY_NAME, installed, home_of(needed, tmp_path))
    assert "from its repository with the extra 'async'" in str(told["AsyncLockClient"])
    assert "from its repository with the extra 'cdk'" in str(told["LockService"])
    assert told["loaded"] == []
    assert (printed, told["command"]) == ("fairlock 0.1.0", "0")
