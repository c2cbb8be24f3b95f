"""Requirements 4-1 to 4-19: callbacks."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from aws_durable_execution_sdk_python import CallbackError
from aws_durable_execution_sdk_python.config import CallbackConfig
from aws_durable_execution_sdk_python.serdes import SerDes, SerDesContext

from testbed.conformance.handlers.case import Case, requirement, seconds


class _Message(SerDes[Any]):
    """Reads a message, with its timestamp in seconds."""

    def serialize(self, value: Any, _: SerDesContext) -> str:
        return json.dumps(value)

    def deserialize(self, data: str, _: SerDesContext) -> Any:
        message = json.loads(data)
        moment = datetime.fromisoformat(message["timestamp"])
        return {**message, "timestamp": int(moment.timestamp())}


class _Number(SerDes[int]):
    """Reads a number."""

    def serialize(self, value: int, _: SerDesContext) -> str:
        return str(value)

    def deserialize(self, data: str, _: SerDesContext) -> int:
        return int(data)


@requirement("4-1")
@requirement("4-6")
def _result(case: Case) -> Any:
    return case.context.create_callback(name=case.input).result()


@requirement("4-2")
def _named(case: Case) -> Any:
    return case.context.create_callback(name="approval").result()


@requirement("4-3")
def _timeout(case: Case) -> Any:
    config = CallbackConfig(timeout=seconds(5))
    return case.context.create_callback(name=case.input, config=config).result()


@requirement("4-4")
def _heartbeat_timeout(case: Case) -> Any:
    config = CallbackConfig(heartbeat_timeout=seconds(5))
    return case.context.create_callback(name=case.input, config=config).result()


@requirement("4-5")
def _heartbeat(case: Case) -> Any:
    config = CallbackConfig(heartbeat_timeout=seconds(10))
    return case.context.create_callback(name=case.input, config=config).result()


@requirement("4-7")
def _step_before_the_failure(case: Case) -> Any:
    callback = case.context.create_callback(name=case.input)
    case.context.step(lambda _: "between")
    return callback.result()


@requirement("4-8")
def _step_before_the_timeout(case: Case) -> Any:
    callback = case.context.create_callback(
        name=case.input, config=CallbackConfig(timeout=seconds(5))
    )
    case.context.step(lambda _: "between")
    return callback.result()


@requirement("4-9")
@requirement("4-10")
def _completed_during_a_wait(case: Case) -> Any:
    callback = case.context.create_callback(name=case.input)
    case.context.wait(seconds(5))
    return callback.result()


@requirement("4-11")
def _times_out_during_a_wait(case: Case) -> Any:
    callback = case.context.create_callback(
        name=case.input, config=CallbackConfig(timeout=seconds(3))
    )
    case.context.wait(seconds(6))
    return callback.result()


@requirement("4-12")
def _wait_afterwards(case: Case) -> Any:
    result = case.context.create_callback(name=case.input).result()
    case.context.wait(seconds(2))
    return result


def _caught(case: Case, config: CallbackConfig | None = None) -> Any:
    callback = case.context.create_callback(name=case.input, config=config)
    try:
        told = callback.result()
    except CallbackError as error:
        told = str(error)
    case.context.wait(seconds(2))
    return told


@requirement("4-13")
def _failure_caught(case: Case) -> Any:
    return _caught(case)


@requirement("4-14")
def _timeout_caught(case: Case) -> Any:
    return _caught(case, CallbackConfig(timeout=seconds(3)))


@requirement("4-15")
def _serdes_of_a_message(case: Case) -> Any:
    config = CallbackConfig(serdes=_Message())
    return {"received": case.context.create_callback(name=case.input, config=config).result()}


@requirement("4-16")
def _serdes_of_a_number(case: Case) -> Any:
    config = CallbackConfig(serdes=_Number())
    count: Any = case.context.create_callback(name=case.input, config=config).result()
    return {"count": count, "doubled": 2 * count}


@requirement("4-17")
def _one_after_the_other(case: Case) -> Any:
    return [case.context.create_callback(name=name).result() for name in case.input]


@requirement("4-18")
def _both_at_once(case: Case) -> Any:
    first, second = [case.context.create_callback(name=name) for name in case.input]
    return [first.result(), second.result()]


@requirement("4-19")
def _the_second_first(case: Case) -> Any:
    first, second = [case.context.create_callback(name=name) for name in case.input]
    of_second = second.result()
    return [first.result(), of_second]
