"""The state machines of the simulated world: what `LockGuard` makes, recorded as JSON.

The CDK takes seconds, so `machines.json` is recorded, and `test_simulation.py` fails if the guard
makes other states today. `python -m tests.simulation.machines` records them again.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]
RECORDED: Final = Path(__file__).with_name("machines.json")
_FUNCTION: Final = "arn:aws:lambda:us-east-1:123456789012:function:"
_WORK: Final = {
    "Type": "Task",
    "QueryLanguage": "JSONata",
    "Resource": "arn:aws:states:::lambda:invoke",
    "Arguments": {"FunctionName": f"{_FUNCTION}work", "Payload": "{% $states.input %}"},
    "Output": "{% $states.input %}",
}
LEASE_SECONDS: Final = 60
KEEP_ALIVE_SECONDS: Final = 20


@cache
def recorded() -> Json:
    found: Json = json.loads(RECORDED.read_text())
    return found


def machine(name: str) -> Json:
    found: Json = recorded()["machines"][name]
    return found


def made_today() -> Json:
    """What the guard and the service's stack make now; takes the CDK."""
    from fairlock.cdk.guard.standalone import FUNCTIONS, WAYS_TO_WAIT, guarded_machine  # noqa: PLC0415 - the CDK takes seconds
    from fairlock.cdk.service import functions, reaper, reaper_rules  # noqa: PLC0415

    arns = {name: _FUNCTION + name.removesuffix("FunctionArn").lower() for name in FUNCTIONS}

    def machine(**options: Any) -> Json:  # noqa: ANN401 - those of a guard
        given = {
            "lock_name": "{% $states.input.lock %}",
            "lease_seconds": LEASE_SECONDS,
            "name": "Turn",
            **options,
        }
        return guarded_machine(_WORK, functions=arns, **given)

    made = {
        "queue": machine(max_wait_seconds=1800),
        "long queue": machine(max_wait_seconds=86_400),
        "poll": machine(max_wait_seconds=1800, waiting=WAYS_TO_WAIT["poll"]),
        "skip": machine(max_wait_seconds=0),
        "permits": machine(max_wait_seconds=1800, limit=100),
        "kept alive": machine(max_wait_seconds=1800, keep_alive_seconds=KEEP_ALIVE_SECONDS),
    }
    timeout = functions.FUNCTION_TIMEOUT_SECONDS
    return {
        "machines": made,
        "reaper": {
            "function timeout": timeout,
            "visibility timeout": timeout * reaper._TRIES_IN_A_VISIBILITY_TIMEOUT,  # noqa: SLF001 - what the stack has
            "batch": reaper._BATCH,  # noqa: SLF001
            "concurrency": reaper.DEFAULT_CONCURRENCY,
            "tries": reaper._MOST_TRIES,  # noqa: SLF001
            "message": reaper_rules.OF_WORKFLOWS.message,
            "paths": dict(reaper_rules.OF_WORKFLOWS.paths),
            "ends": list(reaper_rules.OF_WORKFLOWS.ends),
        },
    }


def main() -> None:
    text = json.dumps(made_today(), indent=1, sort_keys=True, ensure_ascii=False)
    RECORDED.write_text(f"{text}\n")
    sys.stdout.write(f"{RECORDED.name} is recorded\n")


if __name__ == "__main__":
    main()
