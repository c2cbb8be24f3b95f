"""Corrections lambda_errors and lambda_logs, and what a function finds around it."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from testbed.localaws import LocalAws
from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]

BROKEN = """
import os
class LockLost(Exception): pass
def handler(event, context):
    print('about to fail')
    if event == 'pid': return os.getpid()
    raise LockLost('gone')
"""


def invoke(bench: Workbench, function: str, data: object = None) -> Any:
    answer = bench.functions.invoke(FunctionName=function, Payload=json.dumps(data))
    return json.loads(answer["Payload"].read())


def caught_by_name(bench: Workbench, function: str, name: str) -> Any:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function},
        "Catch": [{"ErrorEquals": [name], "Next": "Caught"}],
        "End": True,
    }
    caught = {"Type": "Pass", "End": True}
    ended = bench.run({"StartAt": "T", "States": {"T": task, "Caught": caught}})
    return ended.output if ended.status == "SUCCEEDED" else ended.error


def test_an_exception_can_be_caught_by_its_class_name(corrected: Workbench) -> None:
    caught = caught_by_name(corrected, corrected.function(BROKEN), "LockLost")
    cause = json.loads(caught["Cause"])
    assert caught["Error"] == "LockLost"
    assert (cause["errorType"], cause["errorMessage"]) == ("LockLost", "gone")
    assert "raise LockLost('gone')" in cause["stackTrace"][-1]


def test_control_class_names_are_lost(left_out: WithoutCorrection) -> None:
    bench = left_out("lambda_errors")
    assert caught_by_name(bench, bench.function(BROKEN), "LockLost") == "Runtime.HandlerError"


def processes_around_a_failure(bench: Workbench) -> list[int]:
    function = bench.function(BROKEN)
    before = invoke(bench, function, "pid")
    invoke(bench, function, "fail")
    return [before, invoke(bench, function, "pid")]


def test_an_exception_does_not_cost_the_environment(corrected: Workbench) -> None:
    before, after = processes_around_a_failure(corrected)
    assert before == after


def test_control_an_exception_ends_the_environment(left_out: WithoutCorrection) -> None:
    before, after = processes_around_a_failure(left_out("lambda_errors"))
    assert before != after


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import nothing_like_it\n", "Runtime.ImportModuleError"),
        ("not_a_handler = 1\n", "Runtime.HandlerNotFound"),
        ("raise KeyError('at import')\n", "KeyError"),
        ("import os\ndef handler(e, c): os._exit(1)\n", "Runtime.ExitError"),
        ("import sys\ndef handler(e, c): sys.exit(0)\n", "Runtime.ExitError"),
        ("def handler(e, c): return {1, 2}\n", "Runtime.MarshalError"),
    ],
)
def test_other_failures_have_the_names_of_the_runtime(
    corrected: Workbench, source: str, name: str
) -> None:
    function = corrected.function(source, Timeout=30)
    assert caught_by_name(corrected, function, name)["Error"] == name


def test_a_function_that_outlasts_its_timeout_has_the_name_of_that(corrected: Workbench) -> None:
    sleeps = "import time\ndef handler(e, c): time.sleep(30)\n"
    function = corrected.function(sleeps, Timeout=1)
    caught = caught_by_name(corrected, function, "Sandbox.Timedout")
    assert caught["Error"] == "Sandbox.Timedout"


def error_and_seconds_after_a_kill(bench: Workbench) -> tuple[str | None, float]:
    """What a task fails with whose function's process is killed, and how soon after that."""
    pid_file = bench.aws.home / "killed"
    sleeps = bench.function(
        "import os, time\n"
        "def handler(event, context):\n"
        "    with open(event, 'w') as file: print(os.getpid(), file=file)\n"
        "    time.sleep(15)\n",
        Timeout=20,
    )
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": sleeps, "Payload": str(pid_file)},
        "End": True,
    }
    execution = bench.start({"StartAt": "T", "States": {"T": task}})
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text().endswith("\n")):
        assert time.monotonic() < deadline, "the function was never called"
        time.sleep(0.01)
    before = time.monotonic()
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    ended = bench.wait(execution)
    return ended.error, time.monotonic() - before


def test_a_task_fails_as_soon_as_its_function_is_killed(corrected: Workbench) -> None:
    error, seconds = error_and_seconds_after_a_kill(corrected)
    assert error == "Runtime.ExitError"
    assert seconds < 7  # Long before the function would have ended.


def test_control_a_killed_function_has_another_name(left_out: WithoutCorrection) -> None:
    error, _ = error_and_seconds_after_a_kill(left_out("lambda_errors"))
    assert error != "Runtime.ExitError"


def test_a_function_can_be_invoked_again_after_it_ended_its_process(corrected: Workbench) -> None:
    function = corrected.function(
        "import os\ndef handler(e, c):\n    if e == 'exit': os._exit(1)\n    return e\n"
    )
    assert invoke(corrected, function, "exit")["errorType"] == "Runtime.ExitError"
    assert invoke(corrected, function, "again") == "again"


@pytest.mark.parametrize("value", [None, 0, "", "text", [], [[]], {}, {"a": [None]}, 2**53 - 1])
def test_any_json_value_goes_in_and_out(corrected: Workbench, value: object) -> None:
    function = echo(corrected)
    assert invoke(corrected, function, value) == value


_echoes: dict[int, str] = {}


def echo(bench: Workbench) -> str:
    if id(bench) not in _echoes:
        _echoes[id(bench)] = bench.function("def handler(event, context): return event\n")
    return _echoes[id(bench)]


def test_a_function_reaches_this_aws_and_knows_itself(corrected: Workbench) -> None:
    function = corrected.function(
        "import os, boto3\n"
        "def handler(event, context):\n"
        "    left = context.get_remaining_time_in_millis()\n"
        "    return {\n"
        "        'endpoint': boto3.client('dynamodb').meta.endpoint_url,\n"
        "        'tables': 'TableNames' in boto3.client('dynamodb').list_tables(),\n"
        "        'name': os.environ['AWS_LAMBDA_FUNCTION_NAME'], 'own': os.environ['OWN'],\n"
        "        'region': os.environ['AWS_REGION'], 'context': context.function_name,\n"
        "        'left': 30_000 < left <= 60_000,\n"
        "        'arn': context.invoked_function_arn, 'id': len(context.aws_request_id),\n"
        "    }\n",
        Timeout=60,
        Environment={"Variables": {"OWN": "value"}},
    )
    assert invoke(corrected, function) == {
        "endpoint": corrected.aws.endpoint_url,
        "tables": True,
        "name": function,
        "own": "value",
        "region": "us-east-1",
        "context": function,
        "left": True,
        "arn": f"arn:aws:lambda:us-east-1:000000000000:function:{function}",
        "id": 36,
    }


def test_a_function_does_not_find_what_only_the_checkout_has(corrected: Workbench) -> None:
    function = corrected.function(
        "import importlib.util\n"
        "def handler(event, context): return importlib.util.find_spec('testbed') is None\n"
    )
    assert invoke(corrected, function) is True


def milliseconds_of_warm_invocations(bench: Workbench, number: int) -> Iterator[float]:
    function = echo(bench)
    invoke(bench, function)
    for _ in range(number):
        before = time.perf_counter()
        invoke(bench, function)
        yield 1000 * (time.perf_counter() - before)


def test_a_warm_invocation_does_not_wait_for_log_lines(corrected: Workbench) -> None:
    """If the machine has time for it; the wait would be there each time."""
    assert any(took < 50 for took in milliseconds_of_warm_invocations(corrected, 100))


def test_control_a_warm_invocation_waits_50_ms_for_log_lines(left_out: WithoutCorrection) -> None:
    assert min(milliseconds_of_warm_invocations(left_out("lambda_logs"), 10)) >= 50


def test_the_log_of_an_invocation_is_complete_and_its_own(corrected: Workbench) -> None:
    function = corrected.function(
        "import logging, subprocess\n"
        "def handler(event, context):\n"
        "    print(f'printed {event}')\n"
        "    logging.getLogger().warning('logged %s', event)\n"
        "    subprocess.run(['echo', f'echoed {event}'])\n"
    )
    for number in (1, 2):
        answer = corrected.functions.invoke(
            FunctionName=function, Payload=str(number), LogType="Tail"
        )
        log = base64.b64decode(answer["LogResult"]).decode()
        assert f"printed {number}\n" in log
        assert f"logged {number}\n" in log
        assert f"echoed {number}" in log
        assert f"printed {3 - number}" not in log
        assert "localaws" not in log


def test_a_task_gets_payload_status_and_version(corrected: Workbench) -> None:
    arn = f"arn:aws:lambda:us-east-1:000000000000:function:{echo(corrected)}"
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Arguments": {"FunctionName": f"{arn}:$LATEST", "Payload": "{% $states.input %}"},
        "End": True,
    }
    definition = {"QueryLanguage": "JSONata", "StartAt": "T", "States": {"T": task}}
    ended = corrected.run(definition, {"a": 1})
    assert ended.output == {"ExecutedVersion": "$LATEST", "Payload": {"a": 1}, "StatusCode": 200}


def result_of_a_task(bench: Workbench, **arguments: object) -> object:
    function = echo(bench)
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function, **arguments},
        "End": True,
    }
    return bench.run({"StartAt": "T", "States": {"T": task}}, {"in": "put"}).output


def test_a_task_without_payload_sends_none(corrected: Workbench) -> None:
    expected = {"ExecutedVersion": "$LATEST", "Payload": {}, "StatusCode": 200}
    assert result_of_a_task(corrected) == expected


def test_control_a_task_without_payload_sends_its_arguments(left_out: WithoutCorrection) -> None:
    bench = left_out("lambda_task")
    assert result_of_a_task(bench) == {"Payload": {"FunctionName": echo(bench)}, "StatusCode": 200}


def test_a_task_calls_the_alias_it_names(corrected: Workbench) -> None:
    function = echo(corrected)
    version = corrected.functions.publish_version(FunctionName=function)["Version"]
    corrected.functions.create_alias(FunctionName=function, Name="live", FunctionVersion=version)
    result = result_of_a_task(corrected, Qualifier="live", Payload=1)
    assert result == {"ExecutedVersion": version, "Payload": 1, "StatusCode": 200}


def test_a_throttled_task_has_the_name_that_retriers_match(corrected: Workbench) -> None:
    function = corrected.function("def handler(event, context): return event\n")
    corrected.functions.put_function_concurrency(
        FunctionName=function, ReservedConcurrentExecutions=0
    )
    caught = caught_by_name(corrected, function, "Lambda.TooManyRequestsException")
    assert caught["Error"] == "Lambda.TooManyRequestsException"


# The setting LOCALAWS_FEW_ENVIRONMENTS: quick invocations share environments, slow ones do not.


AT_ONCE = 8
SLEEPS = """
import os, time
def handler(event, context):
    time.sleep(event)
    return os.getpid()
"""


def environments(bench: Workbench, *, before: float, seconds: float) -> int:
    """How many environments answer so many invocations at once.

    Before, there was one, which took `before` seconds for each of three.
    """
    function = bench.function(SLEEPS)
    for _ in range(3):
        invoke(bench, function, before)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seconds_of_each = [seconds] * AT_ONCE
        return len(set(pool.map(lambda each: invoke(bench, function, each), seconds_of_each)))


@pytest.mark.parametrize(
    ("given", "few"), [({"LOCALAWS_FEW_ENVIRONMENTS": "1"}, True), ({}, False)]
)
def test_quick_invocations_share_environments_if_the_setting_says_so(
    given: dict[str, str], *, few: bool
) -> None:
    with LocalAws(settings=given) as aws:
        bench = Workbench(aws)
        # With the setting each is over long before the next one gives up waiting for it; without
        # it none is over before all have come.
        quick = environments(bench, before=0, seconds=0.02 if few else 1)
        slow = environments(bench, before=0.3, seconds=1)
    assert (quick <= AT_ONCE // 2) is few
    assert slow > AT_ONCE // 2
