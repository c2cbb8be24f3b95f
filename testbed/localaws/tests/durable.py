"""Durable functions for the tests of the corrections, and their executions."""

import json
import time
from typing import Any

from testbed.localaws.workbench import Workbench

SOURCE = """
import os, pathlib, time
from aws_durable_execution_sdk_python import CallbackTimeoutError, StepError, durable_execution
from aws_durable_execution_sdk_python.config import (
    CallbackConfig, Duration, StepConfig, StepSemantics
)
from aws_durable_execution_sdk_python.retries import RetryStrategyConfig, create_retry_strategy
from aws_durable_execution_sdk_python.waits import WaitForConditionConfig, WaitForConditionDecision

def note(event, text="x"):
    with open(event["notes"], "a") as notes:
        notes.write(text)

def waits(event, context):
    context.wait(Duration.from_seconds(1))
    return event["n"] + 1

def dies_once(event, context):
    context.step(lambda _: note(event), name="before")
    if not pathlib.Path(event["notes"] + ".died").exists():
        pathlib.Path(event["notes"] + ".died").touch()
        os._exit(1)
    return "alive"

def until(condition):
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)

def meets_another(event, context):
    def work(_):
        note(event, "(")
        until(lambda: pathlib.Path(event["notes"]).read_text().count("(") == 2)
        note(event, ")")
    context.step(work, name="work")

def is_called_back_while_busy(event, context):
    callback = context.create_callback(config=CallbackConfig(timeout=Duration.from_seconds(60)))
    go = pathlib.Path(event["notes"] + ".go")
    context.step(lambda _: until(go.exists), name="busy")
    context.step(lambda _: note(event), name="afterwards")
    return callback.result()

def waits_without_timeout(event, context):
    callback = context.create_callback()
    try:
        return callback.result()
    except CallbackTimeoutError:
        return "timed out"

def tries_at_most_twice(event, context):
    def fails(_):
        note(event)
        raise ValueError("no")
    config = StepConfig(
        step_semantics=StepSemantics.AT_MOST_ONCE_PER_RETRY,
        retry_strategy=create_retry_strategy(
            RetryStrategyConfig(max_attempts=2, initial_delay=Duration.from_seconds(1))
        ),
    )
    try:
        context.step(fails, name="fails", config=config)
    except StepError:
        return "failed"

def fails(event, context):
    raise ValueError("no")

def polls(event, context):
    config = WaitForConditionConfig(
        lambda state, tries: WaitForConditionDecision.stop_polling() if state == 2 or tries == 3
        else WaitForConditionDecision.continue_waiting(Duration.from_seconds(1)), 0)
    return context.wait_for_condition(lambda state, _: state + 1, config)

def fails_once_then_hears_nothing(event, context):
    def work(_):
        if not pathlib.Path(event["notes"]).exists():
            note(event)
            raise ValueError("no")
    retry = RetryStrategyConfig(max_attempts=2, initial_delay=Duration.from_seconds(1))
    context.step(work, name="work", config=StepConfig(retry_strategy=create_retry_strategy(retry)))
    limits = {limit: Duration.from_seconds(seconds) for limit, seconds in event["limits"].items()}
    def wait(child):
        return child.create_callback("told", config=CallbackConfig(**limits)).result()
    context.run_in_child_context(wait, name="inside")

@durable_execution
def handler(event, context):
    return globals()[event["do"]](event, context)
"""
_functions: dict[tuple[int, int], str] = {}


def function(bench: Workbench, *, execution_seconds: int = 60) -> str:
    """One function for all tests of a bench: its environment takes a second of CPU to start."""
    key = (id(bench), execution_seconds)
    if key not in _functions:
        config = {"ExecutionTimeout": execution_seconds}
        _functions[key] = bench.function(SOURCE, DurableConfig=config, Timeout=30)
    return _functions[key]


def call(bench: Workbench, do: str, **event: object) -> object:
    payload = json.dumps({"do": do, **event})
    response = bench.functions.invoke(
        FunctionName=function(bench), Qualifier="$LATEST", Payload=payload
    )
    return json.loads(response["Payload"].read())


def start(bench: Workbench, do: str, *, execution_seconds: int = 60, **event: object) -> str:
    response = bench.functions.invoke(
        FunctionName=function(bench, execution_seconds=execution_seconds),
        Qualifier="$LATEST",
        InvocationType="Event",
        Payload=json.dumps({"do": do, **event}),
    )
    return str(response.get("DurableExecutionArn"))


def status(bench: Workbench, arn: str) -> Any:
    return bench.functions.get_durable_execution(DurableExecutionArn=arn)


def ended(bench: Workbench, arn: str, *, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = status(bench, arn)
        if found["Status"] != "RUNNING":
            return found
        time.sleep(0.02)
    return status(bench, arn)


def callback_of(bench: Workbench, arn: str) -> str:
    """The id of the execution's callback, as soon as there is one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        history = bench.functions.get_durable_execution_history(DurableExecutionArn=arn)
        for event in history["Events"]:
            if event["EventType"] == "CallbackStarted":
                return str(event["CallbackStartedDetails"]["CallbackId"])
        time.sleep(0.02)
    raise AssertionError(arn)
