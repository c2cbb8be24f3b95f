"""Requirements 3-1 to 3-18: child contexts."""

from __future__ import annotations

from typing import Any, Final

from aws_durable_execution_sdk_python import ChildContextError, DurableContext, StepContext
from aws_durable_execution_sdk_python.config import ChildConfig
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext

from testbed.conformance.handlers.case import (
    NEVER_REPEATED,
    Case,
    fail,
    requirement,
    seconds,
    tried,
)

_TOO_LARGE: Final = 300 * 1024
"""Characters: more than the 256 KB of a checkpoint."""


class BareUpperCase(SerDes[str]):
    """Writes text in capitals, without quotes."""

    def serialize(self, value: str, _: SerDesContext) -> str:
        """As 3-14 says."""
        return value.upper()

    def deserialize(self, data: str, _: SerDesContext) -> str:
        """As written."""
        return data


def _step_of(text: str) -> Any:
    return lambda child: child.step(lambda _: text)


@requirement("3-1")
def _basic(case: Case) -> Any:
    return case.context.run_in_child_context(_step_of(case.input))


@requirement("3-2")
def _named(case: Case) -> Any:
    name, value = case.input["name"], case.input["value"]
    return case.context.run_in_child_context(_step_of(value), name=name)


@requirement("3-3")
def _two_steps(case: Case) -> Any:
    def child(context: DurableContext) -> Any:
        first = context.step(lambda _: case.input)
        return context.step(lambda _: first)

    return case.context.run_in_child_context(child, name="two steps")


@requirement("3-4")
def _fails(case: Case) -> Any:
    return case.context.run_in_child_context(
        lambda child: child.step(fail, config=NEVER_REPEATED), name="fails"
    )


@requirement("3-5")
def _caught(case: Case) -> Any:
    try:
        return case.context.run_in_child_context(
            lambda child: child.step(fail, config=NEVER_REPEATED)
        )
    except ChildContextError:
        return case.context.step(lambda _: case.input)


@requirement("3-6")
def _nested(case: Case) -> Any:
    def outer(context: DurableContext) -> Any:
        context.step(lambda _: case.input)
        return context.run_in_child_context(_step_of(case.input), name="inner")

    return case.context.run_in_child_context(outer, name="outer")


@requirement("3-7")
def _second_attempt(case: Case) -> Any:
    def work(_: StepContext) -> Any:
        return fail() if case.is_first("attempt") else case.input

    return case.context.run_in_child_context(
        lambda child: child.step(work, config=tried(2)), name="second attempt"
    )


@requirement("3-8")
def _attempts_used_up(case: Case) -> Any:
    return case.context.run_in_child_context(
        lambda child: child.step(fail, config=tried(2)), name="used up"
    )


@requirement("3-9")
def _skipped_on_replay(case: Case) -> Any:
    result = case.context.run_in_child_context(_step_of(case.input))
    case.context.wait(seconds(1))
    return result


def _step_and_wait(case: Case) -> Any:
    def child(context: DurableContext) -> Any:
        result = context.step(lambda _: case.input)
        context.wait(seconds(1))
        return result

    return child


@requirement("3-10")
def _waits_inside(case: Case) -> Any:
    return case.context.run_in_child_context(_step_and_wait(case), name="waits")


@requirement("3-11")
def _large_result(case: Case) -> Any:
    def child(context: DurableContext) -> Any:
        small = context.step(lambda _: "x")
        case.log(case.input)
        return small * _TOO_LARGE

    case.context.run_in_child_context(child, name="large")
    case.context.wait(seconds(1))


@requirement("3-12")
def _dies_inside(case: Case) -> Any:
    def work(_: StepContext) -> Any:
        if case.is_first("attempt"):
            case.die()
        return case.input

    return case.context.run_in_child_context(lambda child: child.step(work))


@requirement("3-13")
def _only_waits_inside(case: Case) -> Any:
    def child(context: DurableContext) -> Any:
        context.wait(seconds(1))
        return case.input

    result = case.context.run_in_child_context(child, name="only waits")
    return case.context.step(lambda _: result)


@requirement("3-14")
def _serdes(case: Case) -> Any:
    return case.context.run_in_child_context(
        _step_of(case.input), name="capitals", config=ChildConfig(serdes=BareUpperCase())
    )


@requirement("3-15")
def _fails_without_a_step(case: Case) -> Any:
    return case.context.run_in_child_context(fail, name="fails")


@requirement("3-16")
def _nothing(case: Case) -> Any:
    return case.context.run_in_child_context(lambda _: None, name="nothing")


@requirement("3-17")
def _only_logs(case: Case) -> Any:
    def child(_: DurableContext) -> Any:
        case.log(case.input)
        return case.input

    result = case.context.run_in_child_context(child, name="logs")
    case.context.wait(seconds(1))
    return result


@requirement("3-18")
def _waits_inside_and_after(case: Case) -> Any:
    result = case.context.run_in_child_context(_step_and_wait(case), name="waits")
    result = case.context.step(lambda _: result)
    case.context.wait(seconds(1))
    return result
