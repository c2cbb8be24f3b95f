"""The setting LOCALAWS_FEW_ENVIRONMENTS: quick invocations share environments, slow ones do not."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from testbed.localaws import LocalAws
from testbed.localaws.workbench import Workbench

AT_ONCE = 8
SLEEPS = """
import os, time
def handler(event, context):
    time.sleep(event)
    return os.getpid()
"""


def environments(bench: Workbench, *, seconds: float) -> int:
    """How many environments answer so many invocations at once, when there was one before."""
    function = bench.function(SLEEPS)

    def invoke(_number: int) -> object:
        answer = bench.functions.invoke(FunctionName=function, Payload=json.dumps(seconds))
        return json.load(answer["Payload"])

    for number in range(2):
        invoke(number)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return len(set(pool.map(invoke, range(AT_ONCE))))


@pytest.mark.parametrize(
    ("given", "few"), [({"LOCALAWS_FEW_ENVIRONMENTS": "1"}, True), ({}, False)]
)
def test_quick_invocations_share_environments_if_the_setting_says_so(
    given: dict[str, str], *, few: bool
) -> None:
    with LocalAws(settings=given) as aws:
        bench = Workbench(aws)
        quick, slow = (environments(bench, seconds=seconds) for seconds in (0.05, 0.5))
    assert (quick <= AT_ONCE // 2) is few
    assert slow > AT_ONCE // 2
