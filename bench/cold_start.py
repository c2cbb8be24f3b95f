"""A handler in a fresh interpreter: import and first answer, beside a bare client of boto3.

The asset is as Lambda has it after a synthesis with the functions' own Python: with byte code, here
of the interpreter that measures. One handler is measured from sources as well, as Lambda has it
after a synthesis without that Python. (boto3 has byte code, as in Lambda's runtime.)
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from bench.bed import TABLE, Bed, Figures, spread
from bench.goals import Goal
from fairlock.cdk.service.asset import add_byte_code, assemble
from fairlock.names import TABLE_NAME_VARIABLE

BARE: Final = 'boto3.client("dynamodb")'
BARE_TWO: Final = "with Step Functions"
BARE_THREE: Final = "with SQS as well"
HANDLERS: Final = {
    "acquire": BARE_TWO,
    "heartbeat": BARE_TWO,
    "release": BARE_TWO,
    "reap": BARE_THREE,
    "inspect": BARE,
    "force_release": BARE_TWO,
}
"""And the program that makes as many clients."""
_CLIENTS: Final = {BARE: BARE, BARE_TWO: "two bare clients", BARE_THREE: "three bare clients"}
_MOST: Final = 1.25
_MEMORY_MIB: Final = (128, 256, 512, 1769)
_REPLY_MS: Final = 5
_GB_SECOND_USD: Final = 0.0000166667
FROM_SOURCES: Final = "acquire from sources"
_OWN_PYTHON: Final = f"python3.{sys.version_info.minor}"
_OWNER: Final = "7d3f2c1e-5b0a-4c8e-9f61-d2a47b3e8c15"
_PRELUDE: Final = "import sys, time\nsys.path.insert(0, {asset!r})\n"
_BARE: Final = "import boto3\nclient = boto3.client('dynamodb')\n"
_TWO: Final = "boto3.client('stepfunctions')\n"
_THREE: Final = "boto3.client('sqs')\n"
_FIRST: Final = f"""
key = {{"pk": {{"S": "cold"}}, "sk": {{"S": "COLD"}}}}
client.update_item(TableName={TABLE!r}, Key=key)
"""
_HANDLER: Final = """
from types import SimpleNamespace
from lambdas.{name} import handler
context = SimpleNamespace(
    function_name="f", memory_limit_in_mb=256, aws_request_id="id",
    invoked_function_arn="arn:aws:lambda:us-east-1:000000000000:function:f",
    get_remaining_time_in_millis=lambda: 20000,
)
event = {event!r}
handler(event, context)
"""
_WARM_CALLS: Final = 50
_WARM: Final = f"""
began = time.process_time()
for _ in range({_WARM_CALLS}):
    handler(event, context)
spent = (time.process_time() - began) * 1000 / {_WARM_CALLS}
sys.stderr.write(f"{{spent:.1f}}")
"""
_TELL: Final = "sys.stderr.write(f'{time.process_time() * 1000:.1f}')\n"


def measure(bed: Bed) -> Figures:
    """Milliseconds of CPU time of whole interpreters, alternating in an order that changes."""
    times = 1 if bed.quick else 11
    with tempfile.TemporaryDirectory() as parent:
        sources = assemble(Path(parent))
        asset = Path(shutil.copytree(sources, Path(parent) / "asset"))
        add_byte_code(asset, _OWN_PYTHON)
        files, kib = _size(asset, ".py")
        compiled, byte_code_kib = _size(asset, ".pyc")
        if compiled != files:
            raise RuntimeError(f"{compiled} of {files} modules were compiled")
        on_lambda = _PRELUDE.format(asset=str(asset))
        programs = {
            BARE: on_lambda + _BARE + _FIRST,
            BARE_TWO: on_lambda + _BARE + _TWO + _FIRST,
            BARE_THREE: on_lambda + _BARE + _TWO + _THREE + _FIRST,
            **{name: on_lambda + _handler(name) for name in HANDLERS},
            FROM_SOURCES: _PRELUDE.format(asset=str(sources)) + _handler("acquire"),
        }
        warm = on_lambda + _handler("acquire") + _WARM
        spent: dict[str, list[float]] = {name: [] for name in programs}
        order = Random(1)  # noqa: S311 - no secret
        for _ in range(times):
            for name, program in order.sample(list(programs.items()), len(programs)):
                spent[name].append(_cpu_ms(bed, program + _TELL))
        warm_ms = _cpu_ms(bed, warm)
    figures: Figures = {name: spread(each, digits=0) for name, each in spent.items()}
    for name, each in figures.items():
        each["ratio"] = _ratio(spent[name], spent[BARE])
        each["ratio_to_clients"] = _ratio(spent[name], spent[HANDLERS.get(name, BARE)])
    sizes = {"files": files, "kib": kib, "byte_code_kib": byte_code_kib}
    return {"programs": figures, "warm_ms": warm_ms, **sizes}


def lines(figures: Figures) -> list[str]:
    """The section of the document."""
    programs = dict(figures["programs"])
    bare = programs.pop(BARE)
    ratios = ", ".join(f"{name} {f['ratio']}" for name, f in programs.items())
    return [
        "## Cold starts",
        "",
        (
            "CPU time of a fresh interpreter until the first answer, over "
            f"`{BARE}` ({bare['median']:.0f} ms): {ratios}. The asset has {figures['files']} "
            f"modules of {figures['kib']:,} KiB, and {figures['byte_code_kib']:,} KiB of byte code."
        ),
        "",
        (
            f"An acquire in a warm interpreter takes {figures['warm_ms']} ms of CPU time. By "
            f"**arithmetic**, with {_REPLY_MS} ms for DynamoDB's answer, a call takes "
            f"{_calls(figures['warm_ms'])} a million calls."
        ),
    ]


def goals(figures: Figures) -> list[Goal]:
    """Little more than what every function needs that has these clients."""
    acquire = figures["programs"]["acquire"]
    return [
        Goal.at_most(f"cold start of acquire, over {BARE}", acquire["ratio"], _MOST),
        *(
            Goal.at_most(
                f"cold start of {name}, over {_CLIENTS[bare]}",
                figures["programs"][name]["ratio_to_clients"],
                _MOST,
            )
            for name, bare in HANDLERS.items()
        ),
    ]


def _ratio(times: Sequence[float], bare: Sequence[float]) -> float:
    """The median of the ratios of each round: a machine is not equally fast all the time."""
    return round(statistics.median(a / b for a, b in zip(times, bare, strict=True)), 2)


def _size(asset: Path, suffix: str) -> tuple[int, int]:
    """How many files, and their KiB."""
    sizes = [path.stat().st_size for path in asset.rglob(f"*{suffix}")]
    return len(sizes), sum(sizes) // 1024


def _calls(warm_ms: float) -> str:
    """Lambda gives a function of 1,769 MiB one processor, and less in proportion."""
    calls = []
    for mib in _MEMORY_MIB:
        call_ms = warm_ms * 1769 / mib + _REPLY_MS
        usd = math.ceil(call_ms) / 1000 * mib / 1024 * _GB_SECOND_USD * 1_000_000
        calls.append(f"{call_ms:.0f} ms with {mib} MiB for {usd:.2f} USD")
    return ", ".join(calls)


def _handler(name: str) -> str:
    return _HANDLER.format(name=name, event=_event(name))


def _event(handler: str) -> dict[str, object]:
    if handler == "reap":
        return {"Records": [{"messageId": "m", "eventSource": "aws:sqs", "body": "no event"}]}
    if handler == "inspect":
        return {"lock_name": "cold/inspect"}
    if handler == "force_release":
        why = {"requested_by": "bench", "reason": "a lock that no one holds"}
        return {"lock_name": "cold/force_release", "fencing_token": 1, **why}
    return {"lock_name": f"cold/{handler}", "owner_id": _OWNER}


def _cpu_ms(bed: Bed, program: str) -> float:
    environment = {
        **os.environ,
        "AWS_ENDPOINT_URL": bed.endpoint_url,
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        TABLE_NAME_VARIABLE: TABLE,
        "POWERTOOLS_LOG_LEVEL": "ERROR",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-P", "-c", program],
        env=environment,
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return float(done.stderr.splitlines()[-1])
