"""Requirements 1-1 to 1-20, steps; and 2-1 to 2-5, waits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from aws_durable_execution_sdk_python import StepContext, StepError
from aws_durable_execution_sdk_python.config import Duration, StepConfig, StepSemantics
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext

from testbed.conformance.handlers.case import (
    NEVER_REPEATED,
    Case,
    fail,
    requirement,
    seconds,
    tried,
)


class TransientError(Exception):
    """The error of the requirements 1-15 and 1-16."""


class UpperCase(SerDes[str]):
    """Writes text in capitals."""

    def serialize(self, value: str, _: SerDesContext) -> str:
        """As 1-6 says."""
        return json.dumps(value.upper())

    def deserialize(self, data: str, _: SerDesContext) -> str:
        """As written."""
        return str(json.loads(data))


@requirement("1-1")
def _basic(case: Case) -> Any:
    return case.context.step(lambda _: f"Hello, {case.input}!")


@requirement("1-2")
def _named(case: Case) -> Any:
    return case.context.step(lambda _: f"Hello, {case.input}!", name="custom_step_name")


@requirement("1-3")
def _one_after_the_other(case: Case) -> Any:
    first = case.context.step(lambda _: "first")
    return case.context.step(lambda _: f"{first}_second")


@requirement("1-4")
def _object(case: Case) -> Any:
    return case.context.step(lambda _: {"user": case.input, "count": len(case.input["tags"])})


@requirement("1-5")
def _nothing(case: Case) -> Any:
    return case.context.step(lambda _: None)


@requirement("1-6")
def _serdes(case: Case) -> Any:
    return case.context.step(lambda _: case.input, config=StepConfig(serdes=UpperCase()))


@requirement("1-7")
def _logger(case: Case) -> Any:
    def greet(step: StepContext) -> str:
        step.logger.info("Greeting step started for: %s", case.input)
        greeting = f"Hello, {case.input}!"
        step.logger.info("Greeting step completed with: %s", greeting)
        return greeting

    case.context.set_logger(case.logger())
    return case.context.step(greet)


@requirement("1-8")
def _step_then_wait(case: Case) -> Any:
    computed = case.context.step(lambda _: "computed")
    case.context.wait(seconds(2))
    return computed


@requirement("1-9")
def _skipped_on_replay(case: Case) -> Any:
    value = case.context.step(lambda _: "cached_value" if case.is_first("step") else "repeated")
    case.context.wait(seconds(1))
    return value


@requirement("1-10")
def _raised_again_on_replay(case: Case) -> Any:
    def once(_: StepContext) -> None:
        assert case.is_first("step")  # noqa: S101 - a second call would be another error
        fail()

    try:
        case.context.step(once, config=NEVER_REPEATED)
    except StepError as error:
        case.context.wait(seconds(1))
        return str(error)


@requirement("1-11")
def _second_attempt(case: Case) -> Any:
    def work(_: StepContext) -> str:
        return fail() if case.is_first("attempt") else "Operation succeeded"

    return case.context.step(work, config=tried(2))


@requirement("1-12")
def _attempts_used_up(case: Case) -> Any:
    return case.context.step(fail, config=tried(4))


def _fails_twice(case: Case) -> Any:
    def work(_: StepContext) -> str:
        return fail() if case.is_first("one") or case.is_first("two") else "third"

    return work


@requirement("1-13")
def _default_retries(case: Case) -> Any:
    return case.context.step(_fails_twice(case))


@requirement("1-14")
def _pauses_that_grow(case: Case) -> Any:
    config = tried(3, initial_delay=seconds(2), backoff_rate=3)
    return case.context.step(_fails_twice(case), config=config)


@requirement("1-15")
def _repeated_error(case: Case) -> Any:
    def work(_: StepContext) -> str:
        if case.is_first("attempt"):
            raise TransientError(case.input)
        return "done"

    return case.context.step(work, config=tried(3, retryable_error_types=[TransientError]))


@requirement("1-16")
def _error_that_is_not_repeated(case: Case) -> Any:
    def work(_: StepContext) -> str:
        raise TransientError(case.input)

    return case.context.step(work, config=tried(3, retryable_error_types=[KeyError]))


def _dies_at_first(case: Case) -> Any:
    def work(step: StepContext) -> str:
        step.logger.info("%s", case.input)
        if case.is_first("attempt"):
            case.die()
        return "succeeded on second attempt"

    case.context.set_logger(case.logger())
    return work


@requirement("1-17")
def _at_most_once(case: Case) -> Any:
    config = replace(NEVER_REPEATED, step_semantics=StepSemantics.AT_MOST_ONCE_PER_RETRY)
    return case.context.step(_dies_at_first(case), name="at_most_once_flaky_step", config=config)


@requirement("1-18")
def _at_most_once_each_attempt(case: Case) -> Any:
    config = replace(tried(2), step_semantics=StepSemantics.AT_MOST_ONCE_PER_RETRY)
    return case.context.step(_dies_at_first(case), config=config)


@requirement("1-19")
def _fails_for_good(case: Case) -> Any:
    return case.context.step(fail, config=NEVER_REPEATED)


@requirement("1-20")
def _caught(case: Case) -> Any:
    try:
        return case.context.step(fail, config=NEVER_REPEATED)
    except StepError:
        return case.context.step(lambda _: "fallback_result")


@requirement("2-1")
def _wait(case: Case) -> Any:
    case.context.wait(seconds(2))


@requirement("2-2")
def _wait_with_name(case: Case) -> Any:
    case.context.wait(seconds(2), name="custom_wait_name")


@requirement("2-3")
def _two_waits(case: Case) -> Any:
    case.context.wait(seconds(2), name="wait-1")
    case.context.wait(seconds(2), name="wait-2")
    return {"completedWaits": 2}


@requirement("2-4")
def _minute(case: Case) -> Any:
    case.context.wait(Duration.from_minutes(1))


@requirement("2-5")
def _hour(case: Case) -> Any:
    case.context.wait(Duration.from_hours(1))
