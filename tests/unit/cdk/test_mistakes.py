"""What people get wrong with a guard: synth names the field, the rule and the next step.

The list is that of newcomers who tried. What only shows when a workflow runs, such as an id that is
missing, fails there by the same words, before a lock is asked for.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Annotations, Match

from fairlock.cdk import LockAlarms, LockGuard, LockMonitoring, LockService, Pace, Waiting
from fairlock.cdk.guard import guard_arguments
from fairlock.cdk.guard.guard_arguments import checked_limit
from fairlock.cdk.guard.guard_rules import GuardInMachine
from fairlock.errors import InvalidRequest
from tests.unit.cdk.asl import EvaluationError, evaluate
from tests.unit.cdk.guard_forms import Case, Cases

Mistake = Callable[[Case], object]


def guarded_twice(case: Case) -> None:
    task = case.call("Work")
    case.guard("G", task)
    case.guard("H", task)


def with_setting(setting: str, value: Any, case: Case) -> object:  # noqa: ANN401 - mistakes are no types
    settings: dict[str, Any] = {setting: value}
    return LockService(case, "Own", **settings)


AT_ONCE: dict[str, tuple[Mistake, str]] = {
    "1 f-string with a JsonPath token": (
        lambda c: c.guard(lock_name=f"customer/{sfn.JsonPath.string_at('$.id')}"),
        "lock_name: must be a JsonPath token as a whole: join with JsonPath.format or in JSONata",
    ),
    "2 a path as plain text": (
        lambda c: c.guard(lock_name="$.id"),
        "lock_name: must not start with $: write JsonPath.string_at('$.…') or '{% $states.input.…",
    ),
    "4 JSONata without its marks": (
        lambda c: c.guard(lock_name="'customer/' & $states.input.id"),
        "lock_name: must not contain $states, which nothing evaluates within a literal: write JSON",
    ),
    "5 one of the marks": (
        lambda c: c.guard(lock_name="{% 'customer/' & $states.input.id }"),
        "lock_name: must not contain {%, which nothing evaluates within a literal: write JSONata",
    ),
    "6 lease as int": (
        lambda c: c.guard(lease=60),
        "lease: must be a Duration, such as Duration.seconds(60) (got 60)",
    ),
    "7 max_wait as timedelta": (
        lambda c: c.guard(max_wait=timedelta(seconds=180)),
        "max_wait: must be a Duration, such as Duration.seconds(60) (got datetime.timedelta",
    ),
    "8 lease 13 h": (
        lambda c: c.guard(lease=Duration.hours(13)),
        "lease: must be a number of seconds from 1 to 43200 (12 h); for longer work, let heart",
    ),
    "9 limit 0": (
        lambda c: c.guard(limit=0),
        "limit: must be a whole number from 1 to 100 (got 0)",
    ),
    "10 max_wait 30 days": (
        lambda c: c.guard(max_wait=Duration.days(30)),
        "25,000 events; a longer fallback, as in Waiting.queue(fallback=Duration.hours(1)), allows",
    ),
    "11 keep_alive longer than the lease": (
        lambda c: c.guard(keep_alive=Duration.seconds(120)),
        "keep_alive: must be from 1 s to a third of the lease of 60 s, so that two heartbeats may",
    ),
    "17 two guards of one task": (
        guarded_twice,
        "task: must be guarded once: make a state of its own for each guard (got 'Work')",
    ),
    "18 service is a text": (
        lambda c: c.guard(service="Fairlock"),
        "service: must be a LockService of this app, or one of LockService.from_stack(…)",
    ),
    "19 task is no state": (
        lambda c: c.guard(task="fn"),
        "task: must be a state, a chain or a fragment of a state machine, such as tasks.LambdaInv",
    ),
    "22 wait=": (
        lambda c: c.guard(wait=Duration.seconds(5)),
        "wait: is no argument; use max_wait",
    ),
    "1a another stack than Fairlock, and no stack_name": (
        lambda c: LockService.from_stack(c, "LocksProd"),  # type: ignore[call-arg]  # the mistake
        "stack_name: is required: SharedLockService(scope, construct_id, stack_name, encryption",
    ),
    "10a only_newest as NaN": (
        lambda c: c.guard(only_newest=math.nan),
        "only_newest: must be True, the version of this caller (a whole number of at least 0), or",
    ),
    "18a the stack's name as NaN": (
        lambda c: LockService.from_stack(c, "Shared", stack_name=math.nan),  # type: ignore[arg-type]  # the mistake
        "stack_name: must be the name of a stack: a letter, then up to 127 letters, digits and",
    ),
    "18b an ARN in place of the key": (
        lambda c: LockService.from_stack(c, "Shared", stack_name="A", encryption_key="arn:…"),  # type: ignore[arg-type]  # the mistake
        "encryption_key: must be an aws_kms.IKey (got 'arn:…')",
    ),
    "18c from_stack without a scope": (
        lambda _: LockService.from_stack(None, "Shared", stack_name="Fairlock"),  # type: ignore[arg-type]  # the mistake
        "scope: must be the parent construct, such as a Stack (got None)",
    ),
    "18d a service without an id": (
        lambda c: LockService(c, None),  # type: ignore[arg-type]  # the mistake
        "construct_id: must be a text that is not empty (got None)",
    ),
    "18e a setting of a service that there is not": (
        lambda c: LockService(c, "Own", reapers=False),  # type: ignore[call-arg]  # the mistake
        "reapers: is no argument; use reaper",
    ),
    **{
        f"18f {flag} as text": (
            partial(with_setting, flag, "false"),
            f"{flag}: must be True or False (got 'false')",
        )
        for flag in ("reaper", "durable", "administration", "lifecycle_events", "pace")
    },
    "24 a grant to an ARN": (
        lambda c: c.shared().grant_use("arn:aws:iam::123456789012:role/x"),
        "grantee: must be a principal, such as a function, a state machine or a role of aws_iam",
    ),
    "24a a grant on the table to an ARN": (
        lambda c: c.shared().grant_client("arn:aws:iam::123456789012:role/x"),
        "grantee: must be a principal, such as a function, a state machine or a role of aws_iam",
    ),
    "24b a key of a durable function as text": (
        lambda c: c.shared().grant_durable(lambda_.Function, key="arn:…"),
        "key: must be an aws_kms.IKey (got 'arn:…')",
    ),
    "25 the name of a dashboard with a space": (
        lambda c: LockMonitoring(c, "Watch", service=c.shared(), dashboard_name="My locks"),
        "dashboard_name: must be 1 to 255 letters, digits, hyphens and underscores, or None",
    ),
    "25a an alarm at nothing": (
        lambda _: LockAlarms(lost=0),
        "lost: must be a whole number from 1 on, or None for no alarm (got 0)",
    ),
    "25b an alarm in seconds": (
        lambda _: LockAlarms(current_wait=600),  # type: ignore[arg-type]  # the mistake
        "current_wait: must be a Duration, such as Duration.seconds(60) (got 600)",
    ),
    "26 a pace as text": (
        lambda c: Pace(c, "P", service=c.shared(), pace_name="v", rate="10/1m"),  # type: ignore[arg-type]  # the mistake
        "rate: must be a pair of a number and a Duration, such as (10, Duration.minutes(1))",
    ),
    "26a a pace without rate": (
        lambda c: Pace(c, "P", service=c.shared(), pace_name="v"),  # type: ignore[call-arg]  # the mistake
        "rate: is required: Pace(scope, construct_id, service, pace_name, rate, burst, max_wait",
    ),
    "27 the token of a guard by a keyword that there is not": (
        lambda c: LockGuard.fencing_token_of(c, guard_id="Guard"),  # type: ignore[call-arg]  # the mistake
        "guard_id: is no argument; use one of",
    ),
    "28 the fallback in seconds": (
        lambda _: Waiting.queue(fallback=300),  # type: ignore[arg-type]  # the mistake
        "fallback: must be a Duration, such as Duration.seconds(60) (got 300)",
    ),
    "28a the fallback by another name": (
        lambda _: Waiting.queue(fall_back=Duration.minutes(5)),  # type: ignore[call-arg]  # the mistake
        "fall_back: is no argument; use fallback",
    ),
    "22a no lock_name": (
        lambda c: LockGuard(c, "G", service=c.stack.locks, task=c.call("Work")),  # type: ignore[call-arg]  # the mistake
        "lock_name: is required: LockGuard(scope, construct_id, service, task, lock_name, limit",
    ),
}


@pytest.mark.parametrize("mistake", AT_ONCE)
def test_a_wrong_argument_is_refused_before_anything_is_made(mistake: str) -> None:
    make, text = AT_ONCE[mistake]
    with pytest.raises(InvalidRequest) as told:
        make(Cases(App(), "Cases").case("Case"))
    assert text in str(told.value)
    assert str(told.value).startswith(f"{told.value.field}: {told.value.rule}")


def express_machine(case: Case) -> None:
    case.machine(case.guard(), state_machine_type=sfn.StateMachineType.EXPRESS)


def standard_machine(case: Case) -> None:
    case.machine(case.guard(express=True))


def nested(case: Case) -> None:
    case.machine(case.guard("Outer", case.guard("Inner", lock_name="a"), lock_name="a"))


def catch_after_the_guard(case: Case) -> None:
    task = case.call("Work")
    guard = case.guard(task=task)
    task.add_catch(case.step("Mail"), errors=["Known"])
    case.machine(guard)


def token(case: Case, guard: str = "Guard") -> sfn.Pass:
    return case.step("Tell", outputs=LockGuard.fencing_token_of(case, guard))


AT_SYNTH: dict[str, tuple[Mistake, str]] = {
    "12 a guard in an Express machine": (
        express_machine,
        "express: must be True in an Express workflow: Step Functions has no task tokens there",
    ),
    "13 an Express guard in a Standard machine": (
        standard_machine,
        "express: must be left out in a Standard workflow: its lock then ends with the execution",
    ),
    "14 nested guards of one lock": (
        nested,
        "holds the lock for as long as this one waits: leave this guard out, or name another lock",
    ),
    "15 a guard in no machine": (
        lambda c: c.guard(),
        "guard: is in no state machine: pass it to DefinitionBody.from_chainable(…), or chain it",
    ),
    "16 a Catch that is added after the guard": (
        catch_after_the_guard,
        "task: must get its own Catch before LockGuard(…) is called, which then puts the task into",
    ),
    "20 the token of another guard": (
        lambda c: c.machine(c.guard(task=token(c, "Typo"))),
        "variable: must be that of a guard around the state 'Tell': fencing_token_of and owner_id",
    ),
    "21a the token before the guard": (
        lambda c: c.machine(token(c).next(c.guard())),
        "fencing_token: must be read by states inside the guard, and this one runs before it: make",
    ),
}


@pytest.mark.parametrize("mistake", AT_SYNTH)
def test_a_wrong_machine_is_refused_at_synth(mistake: str) -> None:
    make, text = AT_SYNTH[mistake]
    app = App()
    make(Cases(app, "Cases").case("Case"))
    assert any(text in fault for fault in app.node.validate())


def test_21_the_token_behind_the_guard_is_warned_of() -> None:
    """It is no error: a report may name it. A write there comes after the release."""
    app = App()
    cases = Cases(app, "Cases")
    behind, inside = cases.case("Behind"), cases.case("Inside")
    behind.machine(behind.guard().next(token(behind)))
    inside.machine(inside.guard(task=token(inside)).next(inside.step("Later")))
    assert app.node.validate() == []
    warned = Match.string_like_regexp("the state 'Tell' behind this guard, which has released")
    annotations = Annotations.from_stack(cases)
    assert len(annotations.find_warning("/Cases/Behind/Guard", warned)) == 1
    assert not annotations.find_warning("/Cases/Inside/Guard", warned)


@pytest.mark.parametrize("missing", [None, "null", "undefined"])
def test_13_a_name_that_was_formatted_from_none_is_warned_of(missing: str | None) -> None:
    """By the rule of the clients. It is no error: an environment may be called `null`."""
    app = App()
    cases = Cases(app, "Cases")
    formatted, right = cases.case("Formatted"), cases.case("Right")
    formatted.machine(formatted.guard(lock_name=f"deploy/{missing}"))
    right.machine(right.guard(lock_name="deploy/nonesuch"))
    said = Match.string_like_regexp("looks like a missing value, .*; pass the value, or acknow")
    annotations = Annotations.from_stack(cases)
    assert len(annotations.find_warning("/Cases/Formatted/Guard", said)) == 1
    assert not annotations.find_warning("/Cases/Right/Guard", said)


def test_7_alarms_that_no_topic_hears_of_are_warned_of() -> None:
    stack = Stack(App(), "Stack")
    locks = LockService.from_stack(stack, "Locks", stack_name="Fairlock")
    topic = sns.Topic(stack, "Topic")
    LockMonitoring(stack, "Unheard", service=locks, alarms=LockAlarms())
    LockMonitoring(stack, "Heard", service=locks, alarms=LockAlarms(), alarm_topic=topic)
    LockMonitoring(stack, "None", service=locks)
    said = Match.string_like_regexp("without a topic: give alarm_topic, or acknowledge this warn")
    [warned] = Annotations.from_stack(stack).find_warning("*", said)
    assert warned.id == "/Stack/Unheard"


def test_a_limit_that_is_missing_when_the_workflow_runs_is_named() -> None:
    limit = checked_limit("{% $states.input.limit %}", shared=False)
    text = r"^limit: \$states.input.limit must give a value: it is missing"
    with pytest.raises(EvaluationError, match=text):
        evaluate(str(limit), states={"input": {}})
    assert evaluate(str(limit), states={"input": {"limit": 3}}) == 3


def test_without_the_rule_a_token_before_the_guard_is_synthesized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GuardInMachine, "_tokens_elsewhere", lambda *_: ())
    app = App()
    case = Cases(app, "Cases").case("Case")
    case.machine(token(case).next(case.guard()))
    assert app.node.validate() == []


def test_23_a_stack_that_shares_no_service_is_found_out_by_cloudformation() -> None:
    """Nothing is asked of AWS at synth; the missing parameter has the stack's name in it."""
    stack = Cases(App(), "Cases")
    LockService.from_stack(stack, "Service", stack_name="Farelock").grant_acquire(
        sfn.StateMachine(stack, "M", definition_body=sfn.DefinitionBody.from_string("{}"))
    )
    parameters = [each.default for each in stack.node.find_all() if hasattr(each, "default")]
    assert parameters == ["/fairlock/Farelock/AcquireFunctionArn"]


CUSTOMER = "{% 'customer/' & $states.input.customer_id %}"
BY_PATH = sfn.JsonPath.format("customer/{}", sfn.JsonPath.string_at("$.customer_id"))
MISSING: dict[str, Any] = {
    "missing": {},
    "null": {"customer_id": None},
    "empty": {"customer_id": ""},
    "an object": {"customer_id": {"id": 7}},
    "a list": {"customer_id": [7]},
}


def name_of(lock_name: str) -> str:
    stack = Cases(App(), "Cases")
    return str(stack.resolve(guard_arguments.workflow_lock_name(stack, lock_name)))


@pytest.mark.parametrize("lock_name", [CUSTOMER, BY_PATH], ids=["JSONata", "JsonPath"])
@pytest.mark.parametrize("what", MISSING)
def test_a_part_of_a_name_that_is_missing_is_no_name(lock_name: str, what: str) -> None:
    """Before, `customer/` and `customer/null` were locks of all customers without an id."""
    text = r"^lock_name: \$states.input.customer_id must be a text or a number: it is missing, null"
    with pytest.raises(EvaluationError, match=text):
        evaluate(name_of(lock_name), states={"input": MISSING[what]})


@pytest.mark.parametrize(("value", "name"), [(7, "customer/7"), ("ä 7", "customer/ä 7")])
@pytest.mark.parametrize("lock_name", [CUSTOMER, BY_PATH], ids=["JSONata", "JsonPath"])
def test_a_part_that_is_there_makes_the_name(lock_name: str, value: object, name: str) -> None:
    assert evaluate(name_of(lock_name), states={"input": {"customer_id": value}}) == name


def test_without_the_check_all_customers_without_an_id_have_one_lock() -> None:
    assert evaluate(CUSTOMER, states={"input": {}}) == "customer/"
    assert evaluate(CUSTOMER, states={"input": {"customer_id": None}}) == "customer/null"


@pytest.mark.parametrize(
    "expression",
    [
        "$states.input.name",
        "$states.input.urgent ? 'a/' & $states.input.id : 'b'",
        "'a/' & $states.input.id and true",
        "'a/' & $states.input.number + 1",
        "'a/' & 'b'",
        "$string($states.input.id)",
    ],
)
def test_jsonata_that_is_no_mere_concatenation_stays_as_it_is(expression: str) -> None:
    assert name_of(f"{{% {expression} %}}") == f"{{% {expression} %}}"


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("'a/' & $f('x & y', $states.input.id) & '/b'", "a/x & y7/b"),
        ('"o\'r/" & $states.input.`customer id`', "o'r/8"),
        ("'a/' & ($states.input.id + 1)", "a/8"),
        ("$states.input.id & '/' & $states.input.list[1]", "7/y"),
    ],
)
def test_operands_may_be_calls_quoted_names_and_brackets(expression: str, name: str) -> None:
    given = {"id": 7, "customer id": 8, "list": ["x", "y"]}
    functions = {"f": lambda text, number: f"{text}{number}"}
    found = name_of(f"{{% {expression} %}}")
    assert evaluate(found, states={"input": given}, functions=functions) == name


def test_without_node_the_import_says_what_to_install() -> None:
    """CDK's own words are: '_NodeProcess' object has no attribute '_process'."""
    imported = subprocess.run(
        [sys.executable, "-c", "import fairlock.cdk"],
        env={"PATH": "", "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert imported.returncode == 1
    last = imported.stderr.strip().splitlines()[-1]
    assert last.startswith(
        "ImportError: fairlock.cdk needs Node.js 22 or newer, which the CDK runs"
    )
