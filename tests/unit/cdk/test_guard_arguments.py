"""Mistakes in the arguments of guards and other constructs are told at synth, by field and rule.

Those that other callers make as well are in `tests/contracts/test_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aws_cdk import App, Aws, Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockGuard, LockMonitoring, LockService, Pace, Waiting
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import Case, Cases, GuardFactory
from tests.unit.cdk.template import evaluate

Json = dict[str, Any]
seconds, hours, millis = Duration.seconds, Duration.hours, Duration.millis
queue: Any = Waiting.queue
QUEUE, TEN_SECONDS = Waiting.queue(), Waiting.queue(fallback=Duration.seconds(10))


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"lock_name": "$.customer"}, r"lock_name: must not start with \$: write JsonPath"),
        ({"lock_name": "customer/{% $states.input.id %}"}, "lock_name: must not contain {%, which"),
        ({"lock_name": " {% $states.input.id %}"}, "lock_name: must not contain {%, which nothing"),
        ({"lock_name": "customer/$.id"}, r"lock_name: must not contain \$\., .* JsonPath.format"),
        ({"lock_name": "customer/$states.input.id"}, r"lock_name: must not contain \$states, whi"),
        ({"lock_name": f"{Aws.REGION}/$.id"}, r"lock_name: must not contain \$\., which nothing"),
        ({"lock_name": "States.Format('{}', 1)"}, r"lock_name: must not contain States.Format\(,"),
        ({"lock_name": "{% $a %}/{% $b %}"}, "lock_name: must be one JSONata expression as a who"),
        ({"lock_name": "{% %}"}, "lock_name: must be one JSONata expression as a whole"),
        ({"limit": "{%%}"}, "limit: must be one JSONata expression as a whole"),
        ({"limit": sfn.JsonPath.number_at("$.n")}, "limit: must be a number or JSONata, .* token"),
        ({"lease": millis(1500)}, "lease: must be a whole number of seconds"),
        ({"max_wait": hours(25)}, "max_wait: must be at most 1 day: .* 25,000 events"),
        ({"max_wait": millis(1)}, "max_wait: must be a whole number of seconds"),
        (
            {"max_wait": seconds(300), "express": True},
            r"max_wait: must be under 5 minutes, .* Express workflow \(got '300 s'\)",
        ),
        (
            {"waiting": QUEUE, "express": True},
            r"waiting: must be Waiting.poll\(\) in an Express workflow: .* task tokens",
        ),
        (
            {"waiting": QUEUE, "max_wait": seconds(4)},
            r"max_wait: must be 0 to skip .* at least 5 s, .* also takes less \(got '4 s'\)",
        ),
        (
            {"waiting": TEN_SECONDS, "max_wait": seconds(20_001)},
            "max_wait: must be at most 5 hours .* 25,000 events",
        ),
        ({"keep_alive": millis(1500)}, "keep_alive: must be a whole number of seconds"),
        (
            {"keep_alive": seconds(0)},
            r"keep_alive: must be from 1 s to a third of the lease of 60 s, .* \(got '0 s'\)",
        ),
        (
            {"keep_alive": seconds(21)},
            "keep_alive: .* a third of the lease of 60 s, so that two heartbeats may",
        ),
        (
            {"keep_alive": seconds(1), "lease": seconds(2)},
            "keep_alive: must be from 1 s to a third of the lease of 2 s",
        ),
        (
            {"keep_alive": seconds(20), "express": True},
            "keep_alive: must be left out in an Express workflow: .* no task tokens there",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_field(
    guards: GuardFactory, props: Json, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        guards.guard(**props)


NO_DURATIONS: list[object] = [60, math.nan, 10**400, True, "60", object()]
WRONG: dict[str, list[object]] = {
    "lease": NO_DURATIONS,
    "max_wait": NO_DURATIONS,
    "keep_alive": NO_DURATIONS,
    "lock_name": [math.nan, b"x", [], {}, seconds(1), object()],
    "limit": [None, 10**400, "", "five", [], seconds(1)],
    "waiting": [Waiting.queue, "queue", 5, False, seconds(1)],
    "express": [None, 1, "true", sfn.StateMachineType.EXPRESS],
    "task": [None, "", 7, [], {}, sfn.Pass, seconds(1), Waiting.poll()],
    "on_timeout": ["", 7, [], {}, sfn.Pass, seconds(1)],
    "service": [None, "arn:aws:lambda:…", 7, {}, seconds(1)],
    "scope": [None, "Stack", 7, math.nan],
    "construct_id": [None, "", 7, math.nan],
}


@pytest.mark.parametrize("field", WRONG)
def test_a_value_of_another_type_is_refused_by_name_before_anything_is_made(
    stack: Stack, guards: GuardFactory, field: str
) -> None:
    scope = Construct(stack, f"Wrong {field}")
    task = sfn.Pass(scope, "Task")
    right = {"scope": scope, "construct_id": "Guard", "service": guards.locks, "task": task}
    for value in WRONG[field]:
        arguments: Json = {**right, "lock_name": "x", field: value}
        with pytest.raises(InvalidRequest, match=rf"^{field}: must be .*\(got "):
            LockGuard(**arguments)
        assert scope.node.children == [task], value


def test_a_fallback_period_that_is_no_duration_within_its_bounds_is_refused() -> None:
    for wrong in (*NO_DURATIONS, seconds(0), seconds(9), seconds(43_201), millis(10_500)):
        with pytest.raises(InvalidRequest) as refused:
            queue(fallback=wrong)
        rules = ("from 10 s to 43200 s", "a whole", "a Duration, such as Duration")
        assert str(refused.value).startswith(tuple(f"fallback: must be {rule}" for rule in rules))


def test_arguments_within_the_rules_are_accepted(guards: GuardFactory) -> None:
    within: list[Json] = [
        {"lock_name": "ä" * 256},
        {"limit": 100},
        {"limit": "{% $states.input.permits %}"},
        {"lease": hours(12), "max_wait": hours(24)},
        {"max_wait": seconds(299), "express": True},
        {"keep_alive": seconds(1), "lease": seconds(3)},
        {"keep_alive": hours(4), "lease": hours(12)},
        {"waiting": QUEUE, "max_wait": seconds(5)},
        {"waiting": TEN_SECONDS, "max_wait": hours(5)},
        {"waiting": Waiting.queue(fallback=hours(12)), "max_wait": Duration.days(7)},
    ]
    for props in within:
        guards.guard(**props)


@pytest.mark.parametrize(
    ("path", "expression"),
    [
        ("$", "$states.input"),
        ("$.customer", "$states.input.customer"),
        ("$.a[0].b", "$states.input.a[0].b"),
        ("$['first name'].x", "$states.input.`first name`.x"),
        ("$.and", "$states.input.`and`"),
        ("$$.Execution.Name", "$states.context.Execution.Name"),
        ("$order.id", "$order.id"),
    ],
)
def test_a_json_path_becomes_jsonata(guards: GuardFactory, path: str, expression: str) -> None:
    assert guards.lock_name(sfn.JsonPath.string_at(path)) == f"{{% {expression} %}}"


def test_a_path_or_function_of_jsonpath_without_counterpart_is_refused(
    guards: GuardFactory,
) -> None:
    paths = ("$..customer", "$.a[*]", "$.a[?(@.b==1)]", "$.a[0:2]")
    tokens = [*map(sfn.JsonPath.string_at, paths), sfn.JsonPath.uuid()]
    formats = [sfn.JsonPath.format("{}", token) for token in (tokens[0], tokens[-1])]
    by_path = sfn.JsonPath.format(sfn.JsonPath.string_at("$.template"), "x")
    for token in (*tokens, *formats, by_path):
        with pytest.raises(InvalidRequest, match=r"^lock_name: uses a JSONPath that has no simple"):
            guards.guard(lock_name=token)


def test_a_formatted_path_becomes_a_concatenation(guards: GuardFactory) -> None:
    token = sfn.JsonPath.format(
        "o'clock/{}/{}!", sfn.JsonPath.string_at("$.a"), sfn.JsonPath.string_at("$$.Execution.Name")
    )
    states = {"input": {"a": 7}, "context": {"Execution": {"Name": "run"}}}
    assert evaluate(guards.lock_name(token), states=states) == "o'clock/7/run!"


def test_a_part_of_a_string_cannot_be_a_path(guards: GuardFactory) -> None:
    rule = r"must be a JsonPath token as a whole.*JsonPath.string_at\('\$.id'\)\) \(got 'customer/…"
    with pytest.raises(InvalidRequest, match=rf"^lock_name: {rule}'\)$"):
        guards.guard(lock_name=f"customer/{sfn.JsonPath.string_at('$.customer')}")


def test_a_name_without_the_f_before_it_is_refused(guards: GuardFactory) -> None:
    told = r"^lock_name: must not contain \{.*\}, which nothing replaces: for a value of the wor"
    names = ("customer/{id}", "customer/{event['id']!r}", "{a}/{b}", "customer/{}", "customer/{0}")
    for name in names:
        for lock_name in (name, ["other", name]):
            with pytest.raises(InvalidRequest, match=told):
                guards.guard(lock_name=lock_name)


def test_other_braces_stand_in_a_name_and_what_is_known_at_deployment_is_a_literal(
    guards: GuardFactory,
) -> None:
    assert guards.lock_name(f"report-{Aws.REGION}").startswith("{'Fn::Join'")
    for name in ("deploy/${Stage}", '{"id":7}', "a{", "}{"):
        assert guards.lock_name(name) == name


def test_the_fencing_token_is_known_before_the_guard(stack: Stack, guards: GuardFactory) -> None:
    guard = guards.guard("Charge per-customer!")
    scope = guard.node.scope
    assert scope is not None
    assert guard.fencing_token == f"{{% {guard.fencing_token_path} %}}"
    assert LockGuard.fencing_token_of(scope, guard.node.id) == guard.fencing_token
    assert LockGuard.fencing_token_path_of(scope, guard.node.id) == guard.fencing_token_path
    assert LockGuard.fencing_token_of(stack, guard.node.id) != guard.fencing_token
    assert guard.fencing_token_path.startswith("$lock_Charge_per_customer__")


def test_guards_with_long_ids_get_names_that_step_functions_takes(guards: GuardFactory) -> None:
    guard = guards.guard("G" * 200)
    assert len(guard.start_state.state_id) <= 80
    assert len(guard.fencing_token_path) <= 80


# Of all constructs: what synth tells names the field, the rule and the next step.

# Mistakes are no types.
a_guard: Any = LockGuard
a_service: Any = LockService
monitoring: Any = LockMonitoring
a_pace: Any = Pace
PRINCIPAL = "must be a principal, such as a function, a state machine or a role of aws_iam"
PAIR = "must be a pair such as (10, Duration.minutes(1)): how many, a whole number of at"


def guarded_twice(case: Case) -> None:
    task = case.step("Charge")
    for name in ("First", "Second"):
        case.guard(name, task)


def with_flag_as_text(flag: str, case: Case) -> None:
    a_service(case, "Own", **{flag: "false"})


def pace(case: Case, **given: Any) -> None:  # noqa: ANN401 - mistakes
    a_pace(case, "P", service=case.shared(), pace_name="v", **given)


AT_ONCE: dict[str, Callable[[Case], object]] = {
    "lease: must be from 1 second to 12 hours, such as the default of 1 minute: in a Standard": (
        lambda c: c.guard(lease=hours(13))
    ),
    "only_newest: must be True, the version of this caller (a whole number of at least 0), or": (
        lambda c: c.guard(only_newest=math.nan)
    ),
    "wait: is no argument; use max_wait": lambda c: c.guard(wait=seconds(5)),
    "lock_name: is required: LockGuard(scope, construct_id, service, task, lock_name, l": (
        lambda c: a_guard(c, "Guard", service=c.stack.locks, task=c.step("Charge"))
    ),
    "task: must be guarded once: make a state of its own for each": guarded_twice,
    "scope: must be the parent construct, such as": lambda _: a_guard.fencing_token_of(
        None, "Guard"
    ),
    "scope: must be the parent construct": lambda _: a_guard.owner_id_of(None, "Guard"),
    "construct_id: must be": lambda c: a_guard.fencing_token_path_of(c, None),
    "guard_id: is no argument; use one of": (
        lambda c: a_guard.fencing_token_of(c, guard_id="Guard")
    ),
    "stack_name: must be the name of a stack: a letter, then up to 127 letters, digits and": (
        lambda c: a_service.from_stack(c, "Shared", stack_name=math.nan)
    ),
    "stack_name: is required: LockService.from_stack(scope, construct_id, stack_name, ": (
        lambda c: a_service.from_stack(c, "LocksProd")
    ),
    "encryption_key: must be an aws_kms.IKey (got 'arn:…')": (
        lambda c: a_service.from_stack(c, "Shared", stack_name="A", encryption_key="arn:…")
    ),
    "scope: must be the parent construct, such as a Stack (got None)": (
        lambda _: a_service.from_stack(None, "Shared", stack_name="Fairlock")
    ),
    # As of the client.
    "construct_id: is required: LockService.from_stack(scope, construct_id, stack_name, encr": (
        lambda _: a_service.from_stack("Fairlock")
    ),
    "construct_id: must be a text that is not empty (got None)": lambda c: a_service(c, None),
    "reapers: is no argument; use reaper": lambda c: a_service(c, "Own", reapers=False),
    **{
        f"{flag}: must be True or False (got 'false')": partial(with_flag_as_text, flag)
        for flag in ("reaper", "durable", "administration", "lifecycle_events", "pace")
    },
    f"grantee: {PRINCIPAL} (": lambda c: c.shared().grant_use("arn:aws:iam::123456789012:role/x"),
    f"grantee: {PRINCIPAL}": lambda c: c.shared().grant_client("arn:aws:iam::123456789012:role/x"),
    "key: must be an aws_kms.IKey (got 'arn:…')": (
        lambda c: c.shared().grant_durable(c.function("Durable"), key="arn:…")
    ),
    "dashboard_name: must be 1 to 255 letters, digits, hyphens and underscores, or None": (
        lambda c: monitoring(c, "Watch", service=c.shared(), dashboard_name="My locks")
    ),
    "service: must be": lambda c: monitoring(c, "Watch", service="Fairlock"),
    "alarms: must be": lambda c: monitoring(c, "Watch", service=c.shared(), alarms={"lost": 1}),
    "alarm_topic: must be": lambda c: monitoring(c, "Watch", service=c.shared(), alarm_topic="arn"),
    f"rate: {PAIR} ": lambda c: pace(c, rate="10/1m"),
    f"rate: {PAIR}": lambda c: pace(c, rate=(10, 60)),
    "rate: is required: Pace(scope, construct_id, service, pace_name, rate, burst, max_wait": pace,
    "fall_back: is no argument; use fallback": lambda _: queue(fall_back=Duration.minutes(5)),
}


def test_a_wrong_argument_is_refused_before_anything_is_made() -> None:
    cases = Cases(App(), "Cases")
    for number, (text, mistake) in enumerate(AT_ONCE.items()):
        with pytest.raises(InvalidRequest) as told:
            mistake(cases.case(f"Case{number}"))
        assert text in str(told.value)
        assert str(told.value).startswith(f"{told.value.field}: {told.value.rule}")
