"""The assembled asset runs by itself: nothing of this environment but boto3, as on Lambda."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlock.cdk.service.asset import add_byte_code
from tests.packaging.conftest import run
from tests.support.checkout import COUNT_COMPILED

pytestmark = pytest.mark.cached

ELSEWHERE = {"AWS_DEFAULT_REGION": "us-east-1", "FAIRLOCK_TABLE_NAME": "locks"}
ON_LAMBDA = {
    **ELSEWHERE,
    "AWS_LAMBDA_FUNCTION_NAME": "acquire",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
}

PRELUDE = """
import importlib, json, socket
asset, boto3_home = sys.path[:2]
touched = []
def blocked(*args, **kwargs):
    touched.append(repr(args))
    raise OSError("no network here")
class Blocked(socket.socket):  # urllib3 makes one at import, to see whether there is IPv6
    connect = connect_ex = sendto = blocked
socket.socket = Blocked
socket.create_connection = socket.getaddrinfo = blocked
"""

IMPORT = """
import gc
collections = lambda: sum(generation["collections"] for generation in gc.get_stats())
before = collections()
module = importlib.import_module(f"lambdas.{name}")
homes = {getattr(found, "__file__", None) for found in sys.modules.values()}
print(json.dumps({
    "handler": callable(module.handler),
    "network": touched,
    "looks_for_garbage": collections() > before + 1,
    "has_frozen": gc.get_freeze_count() > 0,
    "collects": gc.isenabled(),
    "clients": sys.modules["lambdas.runtime"]._client.cache_info().currsize,
    "not_needed": sorted({"boto3", "s3transfer"} & set(sys.modules)),
    "from_elsewhere": sorted(
        home for home in homes
        if home and "site-packages" in home and not home.startswith((asset, boto3_home))
    ),
}))
"""

IMPORT_EVERY_MODULE = """
import pathlib
failed = {}
paths = sorted(path.relative_to(asset) for path in pathlib.Path(asset).rglob("*.py"))
for path in paths:
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    try:
        importlib.import_module(module)
    except Exception as error:
        failed[module] = str(error)
print(json.dumps({"modules": len(paths), "failed": failed}))
"""

INVOKE = """
from types import SimpleNamespace
context = SimpleNamespace(
    function_name="f", memory_limit_in_mb=256, invoked_function_arn="arn", aws_request_id="id"
)
record = {"messageId": "m-1", "eventSource": "aws:sqs", "body": "no event"}
reaped = importlib.import_module("lambdas.reap").handler({"Records": [record]}, context)
try:
    importlib.import_module(f"lambdas.{name}").handler({"lock_name": ""}, context)
except Exception as error:
    print(json.dumps({"error": type(error).__name__, "reaped": reaped}))
"""

STRAY = {
    "rash": """
import urllib.request
import boto3
import lambdas.runtime
handler = len
try:
    urllib.request.urlopen("http://127.0.0.1:9")
except OSError:
    pass
""",
    "client": "from fairlock.client import lock_client",
    "parser": "from aws_lambda_powertools.utilities import parser",
}
"""Modules that would be wrong among the handlers."""


def run_alone(
    script: str,
    asset: Path,
    boto3_home: Path,
    handler: str,
    environment: Mapping[str, str] = ELSEWHERE,
) -> dict[str, Any]:
    script = f"name = {handler!r}\n{PRELUDE}{script}"
    return run(script, asset, boto3_home, environment=environment)


CLIENTS = {
    **dict.fromkeys(("acquire", "heartbeat", "release", "force_release", "set_limit"), 2),
    **dict.fromkeys(("inspect", "pace", "watch"), 1),
    "reap": 3,
    "publish": 2,
}
"""How many clients of AWS each handler makes when it is imported."""


@pytest.mark.parametrize("handler", CLIENTS)
def test_importing_a_handler_on_lambda_makes_its_clients_and_touches_no_network(
    asset: Path, boto3_home: Path, handler: str
) -> None:
    """The import has more CPU than the first invocation, and leaves no garbage. boto3 is more than
    botocore, which makes the clients."""
    assert run_alone(IMPORT, asset, boto3_home, handler, ON_LAMBDA) == {
        "handler": True,
        "network": [],
        "looks_for_garbage": False,
        "has_frozen": True,
        "collects": True,
        "clients": CLIENTS[handler],
        "not_needed": [],
        "from_elsewhere": [],
    }


def test_importing_a_handler_elsewhere_needs_no_region_makes_no_client_and_looks_for_garbage(
    asset: Path, boto3_home: Path
) -> None:
    found = run_alone(IMPORT, asset, boto3_home, "acquire", {})
    assert found["clients"] == 0
    assert found["looks_for_garbage"]
    assert found["collects"]
    assert not found["has_frozen"]


def test_every_module_of_the_asset_can_be_imported(asset: Path, boto3_home: Path) -> None:
    """So no module needs a client, a construct, or a sub-package of Powertools that is left out."""
    found = run_alone(IMPORT_EVERY_MODULE, asset, boto3_home, "")
    assert found == {"modules": len(list(asset.rglob("*.py"))), "failed": {}}


def test_a_module_that_imports_boto3_or_what_is_left_out_or_touches_the_network_is_noticed(
    asset: Path, boto3_home: Path, tmp_path: Path
) -> None:
    home = tmp_path / "asset"
    shutil.copytree(asset, home)
    for name, source in STRAY.items():
        (home / "lambdas" / f"{name}.py").write_text(source)
    found = run_alone(IMPORT, home, boto3_home, "rash")
    assert found["network"] != []
    assert found["not_needed"] == ["boto3", "s3transfer"]
    failed = run_alone(IMPORT_EVERY_MODULE, home, boto3_home, "")["failed"]
    assert failed.keys() == {"lambdas.client", "lambdas.parser"}
    assert failed["lambdas.client"] == "No module named 'fairlock.client'"
    assert failed["lambdas.parser"].startswith("cannot import name 'parser'")


def test_handlers_run_on_the_asset_alone(asset: Path, boto3_home: Path) -> None:
    assert run_alone(INVOKE, asset, boto3_home, "acquire") == {
        "error": "InvalidRequest",
        "reaped": {"batchItemFailures": [{"itemIdentifier": "m-1"}]},
    }


# With byte code of the interpreter that runs them, the handlers' imports compile nothing. No
# process here writes byte code, as none can where the asset is read-only.

COUNT = (
    COUNT_COMPILED
    + """
for handler in name.split():
    importlib.import_module(f"lambdas.{handler}")
homes = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(json.dumps({
    "imported": sum(home.startswith(asset) for home in homes),
    "compiled": sum(path.startswith(asset) for path in compiled),
}))
"""
)


def test_with_byte_code_the_import_of_every_handler_compiles_nothing_and_without_it_all(
    asset: Path, boto3_home: Path, tmp_path: Path
) -> None:
    compiled = tmp_path / "asset"
    shutil.copytree(asset, compiled)
    add_byte_code(compiled, f"python3.{sys.version_info.minor}")
    every = " ".join(CLIENTS)
    counts = run_alone(COUNT, compiled, boto3_home, every)
    assert counts["compiled"] == 0
    assert counts["imported"] == run_alone(COUNT, asset, boto3_home, every)["compiled"]
    assert counts["imported"] > 100
