"""Mistakes in the arguments of guards and other constructs are told at synth, by field and rule."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aws_cdk import App, Aws, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import LockAlarms, LockGuard, LockMonitoring, LockService, Pace, Waiting
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import Case, Cases, GuardFactory
from tests.unit.cdk.template import evaluate

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"lock_name": "$.customer"}, r"^lock_name: must not start with \$: write JsonPath"),
        (
            {"lock_name": "customer/{% $states.input.id %}"},
            r"^lock_name: must not contain {%, which",
        ),
        (
            {"lock_name": " {% $states.input.id %}"},
            r"^lock_name: must not contain {%, which nothing",
        ),
        ({"lock_name": "customer/$.id"}, r"^lock_name: must not contain \$\., .* JsonPath.format"),
        (
            {"lock_name": "customer/$states.input.id"},
            r"^lock_name: must not contain \$states, which",
        ),
        ({"lock_name": f"{Aws.REGION}/$.id"}, r"^lock_name: must not contain \$\., which nothing"),
        ({"lock_name": "States.Format('{}', 1)"}, r"^lock_name: must not contain States.Format\(,"),
        ({"lock_name": "{% $a %}/{% $b %}"}, r"^lock_name: must be one JSONata expression as a"),
        ({"lock_name": "{% %}"}, r"^lock_name: must be one JSONata expression as a whole"),
        ({"limit": "{%%}"}, r"^limit: must be one JSONata expression as a whole"),
        (
            {"limit": sfn.JsonPath.number_at("$.n")},
            r"^limit: must be a number or JSONata, .* token",
        ),
        ({"lease": Duration.millis(1500)}, r"^lease: must be a whole number of seconds"),
        ({"max_wait": Duration.hours(25)}, r"^max_wait: must be at most 1 day: .* 25,000 events"),
        ({"max_wait": Duration.millis(1)}, r"^max_wait: must be a whole number of seconds"),
        (
            {"max_wait": Duration.minutes(5), "express": True},
            r"^max_wait: must be under 5 minutes, .* Express workflow \(got '300 s'\)",
        ),
        (
            {"waiting": Waiting.queue(), "express": True},
            r"^waiting: must be Waiting.poll\(\) in an Express workflow: .* task tokens",
        ),
        (
            {"waiting": Waiting.queue(), "max_wait": Duration.seconds(4)},
            r"^max_wait: must be 0 to skip .* at least 5 s, .* also takes less \(got '4 s'\)",
        ),
        (
            {
                "waiting": Waiting.queue(fallback=Duration.seconds(10)),
                "max_wait": Duration.seconds(20_001),
            },
            r"^max_wait: must be at most 5 hours .* 25,000 events",
        ),
        ({"keep_alive": Duration.millis(1500)}, r"^keep_alive: must be a whole number of seconds"),
        (
            {"keep_alive": Duration.seconds(0)},
            r"^keep_alive: must be from 1 s to a third of the lease of 60 s, .* \(got '0 s'\)",
        ),
        (
            {"keep_alive": Duration.seconds(21)},
            r"^keep_alive: .* a third of the lease of 60 s, so that two heartbeats may",
        ),
        (
            {"keep_alive": Duration.seconds(1), "lease": Duration.seconds(2)},
            r"^keep_alive: must be from 1 s to a third of the lease of 2 s",
        ),
        (
            {"keep_alive": Duration.seconds(20), "express": True},
            r"^keep_alive: must be left out in an Express workflow: .* no task tokens there",
        ),
    ],
)
def test_a_broken_rule_is_named_with_its_field(
    guards: GuardFactory, props: Json, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        guards.guard(**props)


NO_DURATIONS: list[object] = [
    60,
    0,
    -1,
    1.5,
    float("nan"),
    10**400,
    True,
    "60",
    "",
    [],
    {},
    object(),
]
WRONG: dict[str, list[object]] = {
    "lease": NO_DURATIONS,
    "max_wait": NO_DURATIONS,
    "keep_alive": NO_DURATIONS,
    "lock_name": [None, 7, float("nan"), b"x", [], {}, Duration.seconds(1), object()],
    "limit": [None, True, 1.5, float("nan"), 10**400, "", "five", [], Duration.seconds(1)],
    "waiting": [Waiting.queue, "queue", 5, False, Duration.seconds(1)],
    "express": [None, 1, "true", sfn.StateMachineType.EXPRESS],
    "task": [None, "", 7, float("nan"), [], {}, sfn.Pass, Duration.seconds(1), Waiting.poll()],
    "on_timeout": ["", 7, float("nan"), [], {}, sfn.Pass, Duration.seconds(1)],
    "service": [None, "arn:aws:lambda:…", 7, float("nan"), {}, Duration.seconds(1)],
    "scope": [None, "Stack", 7, float("nan")],
    "construct_id": [None, "", 7, float("nan")],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field, values in WRONG.items() for value in values],
    ids=lambda value: str(value)[:20].split(" object")[0],
)
def test_a_value_of_another_type_is_refused_by_name_before_anything_is_made(
    stack: Stack, guards: GuardFactory, field: str, value: object
) -> None:
    name = f"Wrong{uuid.uuid4()}"
    scope, task = Construct(stack, name), sfn.Pass(stack, f"{name}Task")
    right: Json = {
        "scope": scope,
        "construct_id": "Guard",
        "service": guards.locks,
        "task": task,
        "lock_name": "x",
    }
    with pytest.raises(InvalidRequest, match=rf"^{field}: must be .*\(got "):
        LockGuard(**{**right, field: value})
    assert scope.node.children == []
    LockGuard(**right)


@pytest.mark.parametrize("fallback", NO_DURATIONS, ids=lambda value: str(value)[:20])
def test_a_fallback_period_that_is_no_duration_is_refused(fallback: Any) -> None:  # noqa: ANN401 - on purpose
    with pytest.raises(InvalidRequest, match=r"^fallback: must be a Duration, such as Duration"):
        Waiting.queue(fallback=fallback)


def test_the_task_cannot_be_what_is_done_when_the_wait_is_over(
    stack: Stack, guards: GuardFactory
) -> None:
    task = sfn.Pass(stack, "Charge")
    with pytest.raises(InvalidRequest, match=r"^on_timeout: must not lead to the task, which"):
        LockGuard(stack, "Guard", service=guards.locks, task=task, lock_name="x", on_timeout=task)


@pytest.mark.parametrize(
    "fallback",
    [Duration.seconds(0), Duration.seconds(9), Duration.seconds(43_201), Duration.millis(10_500)],
)
def test_a_fallback_period_out_of_its_bounds_is_refused(fallback: Duration) -> None:
    with pytest.raises(InvalidRequest, match=r"^fallback: must be (from 10 s to 43200 s|a whole)"):
        Waiting.queue(fallback=fallback)


@pytest.mark.parametrize(
    "props",
    [
        {"lock_name": "ä" * 256},
        {"limit": 100},
        {"limit": "{% $states.input.permits %}"},
        {"lease": Duration.hours(12), "max_wait": Duration.hours(24)},
        {"max_wait": Duration.seconds(0)},
        {"max_wait": Duration.seconds(299), "express": True},
        {"express": True},
        {"keep_alive": Duration.seconds(20)},
        {"keep_alive": Duration.seconds(1), "lease": Duration.seconds(3)},
        {"keep_alive": Duration.hours(4), "lease": Duration.hours(12)},
        {"keep_alive": Duration.seconds(20), "waiting": Waiting.queue()},
        {"waiting": Waiting.queue()},
        {"waiting": Waiting.queue(), "max_wait": Duration.seconds(0)},
        {"waiting": Waiting.queue(), "max_wait": Duration.seconds(5)},
        {"waiting": Waiting.queue(fallback=Duration.seconds(10)), "max_wait": Duration.hours(5)},
        {"waiting": Waiting.queue(fallback=Duration.hours(12)), "max_wait": Duration.days(7)},
    ],
)
def test_arguments_within_the_rules_are_accepted(guards: GuardFactory, props: Json) -> None:
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


@pytest.mark.parametrize("path", ["$..customer", "$.a[*]", "$.a[?(@.b==1)]", "$.a[0:2]"])
def test_a_json_path_without_counterpart_is_refused(guards: GuardFactory, path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^lock_name: uses a JSONPath that has no simple"):
        guards.guard(lock_name=sfn.JsonPath.string_at(path))


@pytest.mark.parametrize(
    "token",
    [
        sfn.JsonPath.uuid(),
        sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$..customer")),
        sfn.JsonPath.format("{}", sfn.JsonPath.uuid()),
        sfn.JsonPath.format(sfn.JsonPath.string_at("$.template"), "x"),
    ],
    # The text of a token has a number that differs from process to process.
    ids=["uuid", "deep scan", "format of uuid", "template at a path"],
)
def test_an_intrinsic_function_without_counterpart_is_refused(
    guards: GuardFactory, token: str
) -> None:
    with pytest.raises(InvalidRequest, match=r"^lock_name: uses a JSONPath that has no simple"):
        guards.guard(lock_name=token)


def test_a_formatted_path_becomes_a_concatenation(guards: GuardFactory) -> None:
    token = sfn.JsonPath.format(
        "o'clock/{}/{}!", sfn.JsonPath.string_at("$.a"), sfn.JsonPath.string_at("$$.Execution.Name")
    )
    states = {"input": {"a": 7}, "context": {"Execution": {"Name": "run"}}}
    assert evaluate(guards.lock_name(token), states=states) == "o'clock/7/run!"


@pytest.mark.parametrize("of_what", ["guard", "argument", "required", "service"])
def test_a_call_that_cannot_be_meant_is_refused_with_the_call_that_is(
    stack: Stack, guards: GuardFactory, of_what: str
) -> None:
    def make(name: str, task: sfn.IChainable, **more: Any) -> LockGuard:  # noqa: ANN401 - on purpose
        return LockGuard(stack, name, service=guards.locks, task=task, **more)

    task = sfn.Pass(stack, f"Of {of_what}")
    told: dict[str, tuple[str, Any]] = {
        "guard": (
            rf"^task: must be guarded once: make a state of its own for each .*\(got '{task.id}'\)",
            lambda: [make(name, task, lock_name="x") for name in ("G", "H")],
        ),
        "argument": (
            "^wait: is no argument; use max_wait",
            lambda: make("W", task, lock_name="x", wait=Duration.seconds(5)),
        ),
        "required": (
            r"^lock_name: is required: LockGuard\(scope, construct_id, service, task, lock_name, l",
            lambda: make("R", task),
        ),
        "service": (
            r"^stack_name: is required: LockService.from_stack\(scope, construct_id, stack_name, ",
            lambda: LockService.from_stack(stack, "LocksProd"),  # type: ignore[call-arg]  # the mistake
        ),
    }
    message, mistake = told[of_what]
    with pytest.raises(InvalidRequest, match=message):
        mistake()


def test_a_part_of_a_string_cannot_be_a_path(guards: GuardFactory) -> None:
    with pytest.raises(
        InvalidRequest, match=r"^lock_name: must be a JsonPath token as a whole"
    ) as told:
        guards.guard(lock_name=f"customer/{sfn.JsonPath.string_at('$.customer')}")
    assert str(told.value).endswith("JsonPath.string_at('$.id')) (got 'customer/…')")


@pytest.mark.parametrize(
    "name", ["customer/{id}", "customer/{event['id']!r}", "{a}/{b}", "customer/{}", "customer/{0}"]
)
def test_a_name_without_the_f_before_it_is_refused(guards: GuardFactory, name: str) -> None:
    text = r"^lock_name: must not contain \{.*\}, which nothing replaces: for a value of the wor"
    for lock_name in (name, ["other", name]):
        with pytest.raises(InvalidRequest, match=text):
            guards.guard(lock_name=lock_name)


@pytest.mark.parametrize(
    "name",
    ["deploy/${Stage}", f"report-{Aws.REGION}", '{"id":7}', "a{", "}{"],
    ids=["substitution", "token", "JSON", "opened", "reversed"],
)
def test_other_braces_stand_in_a_name(guards: GuardFactory, name: str) -> None:
    assert guards.lock_name(name)


def test_a_name_known_at_deployment_is_a_literal(guards: GuardFactory) -> None:
    assert guards.lock_name(f"report-{Aws.REGION}").startswith("{'Fn::Join'")


def test_the_fencing_token_is_known_before_the_guard(stack: Stack, guards: GuardFactory) -> None:
    guard = guards.guard("Charge per-customer!")
    scope = guard.node.scope
    assert scope is not None
    assert guard.fencing_token == f"{{% {guard.fencing_token_path} %}}"
    assert LockGuard.fencing_token_of(scope, guard.node.id) == guard.fencing_token
    assert LockGuard.fencing_token_path_of(scope, guard.node.id) == guard.fencing_token_path
    assert LockGuard.fencing_token_of(stack, guard.node.id) != guard.fencing_token
    assert guard.fencing_token_path.startswith("$lock_Charge_per_customer__")


@pytest.mark.parametrize(
    ("scope", "construct_id", "field"), [(None, "Guard", "scope"), ("stack", None, "construct_id")]
)
@pytest.mark.parametrize("name", ["fencing_token_of", "fencing_token_path_of", "owner_id_of"])
def test_the_fencing_token_of_no_guard_is_refused_by_name(
    stack: Stack,
    name: str,
    scope: Any,  # noqa: ANN401 - on purpose
    construct_id: Any,  # noqa: ANN401 - same
    field: str,
) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: must be "):
        getattr(LockGuard, name)(stack if scope else None, construct_id)


def test_guards_with_long_ids_get_names_that_step_functions_takes(guards: GuardFactory) -> None:
    guard = guards.guard("G" * 200)
    assert len(guard.start_state.state_id) <= 80
    assert len(guard.fencing_token_path) <= 80


# Of all constructs: what synth tells names the field, the rule and the next step.

Mistake = Callable[[Case], object]


def with_setting(setting: str, value: Any, case: Case) -> object:  # noqa: ANN401 - mistakes are no types
    settings: dict[str, Any] = {setting: value}
    return LockService(case, "Own", **settings)


AT_ONCE: dict[str, tuple[Mistake, str]] = {
    "8 a lease of 13 hours": (
        lambda c: c.guard(lease=Duration.hours(13)),
        "lease: must be from 1 second to 12 hours, such as the default of 1 minute: in a Standard",
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
    "18g from_stack as of the client": (
        lambda _: LockService.from_stack("Fairlock"),  # type: ignore[call-arg,arg-type]  # the mistake
        "construct_id: is required: LockService.from_stack(scope, construct_id, stack_name, encr",
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
        "rate: must be a pair such as (10, Duration.minutes(1)): how many, a whole number of at",
    ),
    "26b a pace in seconds": (
        lambda c: Pace(c, "P", service=c.shared(), pace_name="v", rate=(10, 60)),  # type: ignore[arg-type]  # the mistake
        "rate: must be a pair such as (10, Duration.minutes(1)): how many, a whole number of at",
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
}


@pytest.mark.parametrize("mistake", AT_ONCE)
def test_a_wrong_argument_is_refused_before_anything_is_made(mistake: str) -> None:
    make, text = AT_ONCE[mistake]
    with pytest.raises(InvalidRequest) as told:
        make(Cases(App(), "Cases").case("Case"))
    assert text in str(told.value)
    assert str(told.value).startswith(f"{told.value.field}: {told.value.rule}")
