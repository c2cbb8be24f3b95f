"""Requirements 6-1 to 6-13: `wait_for_condition`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_durable_execution_sdk_python import WaitForConditionError
from aws_durable_execution_sdk_python.config import JitterStrategy
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext
from aws_durable_execution_sdk_python.waits import (
    WaitForConditionConfig,
    WaitStrategyConfig,
    create_wait_strategy,
)

from testbed.conformance.handlers.case import Case, fail, requirement, seconds


class _Reversed(SerDes[str]):
    """Writes a text from its end."""

    def serialize(self, value: str, _: SerDesContext) -> str:
        return value[::-1]

    def deserialize(self, data: str, _: SerDesContext) -> str:
        return data[::-1]


def _poll(
    case: Case,
    goes_on: Callable[[Any], bool],
    *,
    start: Any = 0,
    check: Callable[[Any], Any] = lambda state: state + 1,
    pause: int = 1,
    **more: Any,
) -> Any:
    strategy: WaitStrategyConfig[Any] = WaitStrategyConfig(
        should_continue_polling=goes_on,
        max_attempts=more.pop("max_attempts", 10),
        initial_delay=seconds(pause),
        backoff_rate=1,
        jitter_strategy=JitterStrategy.NONE,
    )
    config: WaitForConditionConfig[Any] = WaitForConditionConfig(
        create_wait_strategy(strategy), start, more.pop("serdes", None)
    )
    return case.context.wait_for_condition(lambda state, _: check(state), config, **more)


@requirement("6-1")
def _counts(case: Case) -> Any:
    return _poll(case, lambda state: state < case.input)


@requirement("6-2")
def _is_met_at_once(case: Case) -> Any:
    return _poll(case, lambda state: state < case.input, start=5, check=lambda state: state)


@requirement("6-3")
def _named(case: Case) -> Any:
    return _poll(case, lambda state: state < case.input, name="poll-status")


@requirement("6-4")
def _begins_later(case: Case) -> Any:
    return _poll(case, lambda state: state < case.input, start=5)


@requirement("6-5")
def _fixed_pause(case: Case) -> Any:
    return _poll(case, lambda state: state < case.input, pause=2)


@requirement("6-6")
def _is_never_met(case: Case) -> Any:
    return _poll(case, lambda _: True, max_attempts=3)


@requirement("6-7")
def _fails(case: Case) -> Any:
    return _poll(case, lambda _: True, check=fail)


@requirement("6-8")
def _failure_caught(case: Case) -> Any:
    try:
        return _poll(case, lambda _: True, check=fail)
    except WaitForConditionError:
        return "recovered"


@requirement("6-9")
def _object(case: Case) -> Any:
    def check(state: dict[str, Any]) -> dict[str, Any]:
        attempts = state["attempts"] + 1
        return {"status": "DONE" if attempts == 2 else "PENDING", "attempts": attempts}  # noqa: PLR2004 - as 6-9 says

    start = {"status": "PENDING", "attempts": 0}
    return _poll(case, lambda state: state["status"] == "PENDING", start=start, check=check)


@requirement("6-10")
def _nothing(case: Case) -> Any:
    return _poll(case, lambda _: False, check=lambda _: None)


@requirement("6-11")
def _serdes(case: Case) -> Any:
    return _poll(
        case,
        lambda state: len(state) < 2,  # noqa: PLR2004 - as 6-11 says
        start="",
        check=lambda state: state + "x",
        serdes=_Reversed(),
    )


@requirement("6-12")
def _then_a_step(case: Case) -> Any:
    met = _poll(case, lambda state: state < case.input)
    return case.context.step(lambda _: 10 * met)


@requirement("6-13")
def _one_after_the_other(case: Case) -> Any:
    met = _poll(case, lambda state: state < 2)  # noqa: PLR2004 - as 6-13 says
    return _poll(case, lambda state: state < 4, start=met)  # noqa: PLR2004 - same
