"""Requirements 7-1 to 7-15: `wait_for_callback`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aws_durable_execution_sdk_python import CallbackError, DurableContext
from aws_durable_execution_sdk_python.config import WaitForCallbackConfig
from aws_durable_execution_sdk_python.serdes import JsonSerDes

from testbed.conformance.handlers.case import Case, fail, requirement, seconds, tried


def _submit(*_: object) -> None:
    """The id is in the history, where the completer reads it."""


@requirement("7-1")
@requirement("7-4")
@requirement("7-15")
def _result(case: Case) -> Any:
    return case.context.wait_for_callback(_submit, name=case.input)


@requirement("7-2")
def _named(case: Case) -> Any:
    return case.context.wait_for_callback(_submit, name="approval")


@requirement("7-3")
def _without_name(case: Case) -> Any:
    return case.context.wait_for_callback(lambda *_: None)


def _with(case: Case, **config: Any) -> Any:
    return case.context.wait_for_callback(
        _submit, name=case.input, config=WaitForCallbackConfig(**config)
    )


def _or(fallback: str, wait: Callable[[], Any]) -> Any:
    try:
        return wait()
    except CallbackError:
        return fallback


@requirement("7-5")
def _timeout(case: Case) -> Any:
    return _with(case, timeout=seconds(3))


@requirement("7-6")
def _failure_caught(case: Case) -> Any:
    return _or("recovered", lambda: case.context.wait_for_callback(_submit, name=case.input))


@requirement("7-7")
def _submitter_fails(case: Case) -> Any:
    config = WaitForCallbackConfig(retry_strategy=tried(2).retry_strategy)
    return case.context.wait_for_callback(fail, name=case.input, config=config)


@requirement("7-8")
def _in_a_child_context(case: Case) -> Any:
    def child(context: DurableContext) -> Any:
        return context.wait_for_callback(_submit, name=case.input)

    return case.context.run_in_child_context(child, name="wrapper")


@requirement("7-9")
def _one_after_the_other(case: Case) -> Any:
    case.context.wait_for_callback(_submit, name="first")
    return case.context.wait_for_callback(_submit, name="second")


@requirement("7-10")
def _after_a_wait_and_a_step(case: Case) -> Any:
    case.context.wait(seconds(1))
    case.context.step(lambda _: "fixed")
    return case.context.wait_for_callback(_submit, name=case.input)


@requirement("7-11")
def _json(case: Case) -> Any:
    told = _with(case, serdes=JsonSerDes())
    return (json.loads(told) if isinstance(told, str) else told)["status"]


@requirement("7-12")
def _heartbeat_timeout(case: Case) -> Any:
    return _with(case, heartbeat_timeout=seconds(5))


@requirement("7-13")
def _heartbeat(case: Case) -> Any:
    return _with(case, heartbeat_timeout=seconds(10))


@requirement("7-14")
def _timeout_caught(case: Case) -> Any:
    return _or("timed-out-handled", lambda: _with(case, timeout=seconds(3)))
