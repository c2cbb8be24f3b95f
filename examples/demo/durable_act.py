"""The act with durable functions: two of them and two workflows charge one account."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.demo.checks import Check
from examples.demo.facts import Execution
from examples.demo.runner import OPENING_BALANCE, DemoFailed, Runner

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

TITLE = "Durable functions beside workflows"
ACCOUNT = "frank"
AMOUNTS = (10, 20, 30, 40)
WORK_SECONDS = 1.0
APART_SECONDS = 0.5
DEADLINE_SECONDS = 300.0
MOST_INVOCATIONS = 3
"""At its start, when it is handed the lock, and after its sleep."""
_LOOK_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Charged:
    """One execution of the act.

    Attributes:
        kind: "durable function" or "workflow".
        token: of its grant; None if it has not succeeded.
        invocations: of a durable function's execution.
    """

    kind: str
    token: int | None
    invocations: int = 0


def play(runner: Runner, functions: "LambdaClient", function_name: str) -> tuple[Check, ...]:
    """Runs the act, and judges it."""
    runner.open_account(ACCOUNT)
    ends: list[Callable[[], Charged]] = []
    for number, amount in enumerate(AMOUNTS):
        name = f"{ACCOUNT}-{number + 1}"
        charge = {"account_id": ACCOUNT, "amount": amount, "work_seconds": WORK_SECONDS}
        if number % 2 == 0:
            payload = json.dumps({"charge_id": name, **charge})
            arn = functions.invoke(
                FunctionName=function_name,
                Qualifier="$LATEST",
                InvocationType="Event",
                Payload=payload,
            )["DurableExecutionArn"]
            ends.append(lambda arn=arn: _durable(functions, arn))  # type: ignore[misc]  # mypy does not infer it
        else:
            started = runner.start(runner.deployed.guarded_machine, name, charge)
            ends.append(
                lambda started=started: _workflow(  # type: ignore[misc]  # same
                    runner.watch([started], is_over, within_seconds=DEADLINE_SECONDS)[0]
                )
            )
        time.sleep(APART_SECONDS)
    return judge([end() for end in ends], balance=runner.account(ACCOUNT).closing)


def judge(charged: Sequence[Charged], *, balance: int) -> tuple[Check, ...]:
    """What the act shows."""
    tokens = [each.token for each in charged if each.token is not None]
    durable = [each.invocations for each in charged if each.kind == "durable function"]
    expected = OPENING_BALANCE - sum(AMOUNTS)
    return (
        Check(
            claim="durable functions and workflows all finished their work",
            passed=0 < len(tokens) == len(charged) == len(AMOUNTS),
            evidence=f"{len(tokens)} of {len(charged)} succeeded",
        ),
        Check(
            claim="no update was lost",
            passed=balance == expected,
            evidence=f"the balance is {balance}, it should be {expected}",
        ),
        Check(
            claim="each was granted the lock once, by a fencing token of its own",
            passed=len(set(tokens)) == len(AMOUNTS),
            evidence=f"tokens {', '.join(map(str, sorted(tokens)))}",
        ),
        Check(
            claim="a durable function does not run while it waits or sleeps",
            passed=0 < max(durable, default=0) <= MOST_INVOCATIONS,
            evidence=f"{' and '.join(map(str, durable))} invocations",
        ),
    )


def _durable(functions: "LambdaClient", arn: str) -> Charged:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := functions.get_durable_execution(DurableExecutionArn=arn))[
        "Status"
    ] == "RUNNING":
        if time.monotonic() > deadline:
            message = f"waited {DEADLINE_SECONDS:.0f} s in vain for {arn}"
            raise DemoFailed(message)
        time.sleep(_LOOK_AGAIN_SECONDS)
    history: Any = functions.get_durable_execution_history(DurableExecutionArn=arn)
    invocations = [e for e in history["Events"] if e["EventType"] == "InvocationCompleted"]
    token = json.loads(found["Result"])["fencing_token"] if "Result" in found else None
    return Charged(kind="durable function", token=token, invocations=len(invocations))


def _workflow(execution: Execution) -> Charged:
    token = execution.charge.fencing_token if execution.charge else None
    return Charged(kind="workflow", token=token)


def is_over(execution: Execution) -> bool:
    """Whether it runs no more."""
    return execution.status != "RUNNING"
