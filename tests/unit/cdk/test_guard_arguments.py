"""Mistakes in the arguments of guards and other constructs are told at synth, by field and rule.

Those that other callers make as well are in `tests/contracts/test_rules.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import (
    LockAlarms,
    LockGuard,
    LockMonitoring,
    LockService,
    OptimisticUpdate,
    Pace,
    Waiting,
)
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import Case, Cases
from tests.unit.cdk.template import Json, evaluate

seconds, hours, millis = Duration.seconds, Duration.hours, Duration.millis
QUEUE, TEN_SECONDS = Waiting.queue(), Waiting.queue(fallback=Duration.seconds(10))

# Mistakes are no types.
a_guard: Any = LockGuard
a_service: Any = LockService
a_wait: Any = Waiting.queue
MINUTE = Duration.minutes(1)


def right_for_a_guard(case: Case) -> Json:
    what = {"task": case.step("Task"), "lock_name": "x", "waiting": Waiting.poll()}
    return {"service": case.stack.locks, **what}


def right_for_an_update(case: Case) -> Json:
    table = dynamodb.Table.from_table_name(case, "Accounts", "accounts")
    return {"table": table, "key": {"account": {"S": "anna"}}, "task": case.step("Task")}


MAKE: dict[str, tuple[Callable[..., object], Callable[[Case], Json]]] = {
    "LockGuard": (LockGuard, right_for_a_guard),
    "LockService": (LockService, lambda _: {}),
    "LockService.from_stack": (LockService.from_stack, lambda _: {"stack_name": "A"}),
    "LockMonitoring": (LockMonitoring, lambda case: {"service": case.shared()}),
    "OptimisticUpdate": (OptimisticUpdate, right_for_an_update),
    "Pace": (
        Pace,
        lambda case: {"service": case.shared(), "pace_name": "v", "rate": (10, MINUTE)},
    ),
}
"""Constructs, and arguments that are right."""
Mistakes = list[tuple[Json, str]]


def each(field: str, rule: str, *values: object, **others: object) -> Mistakes:
    """Arguments of which one has each of these values in turn, and what is told of it."""
    return [({**others, field: value}, f"{field}: {rule}") for value in values]


NO_DURATIONS = (60, math.nan, 10**400, True, "60", object())
SEVERAL = {"lock_name": ["a", "b"]}
by_path = sfn.JsonPath.string_at
A_TOKEN = by_path("$.id")
NO_COUNTERPART = [
    *map(by_path, ("$..customer", "$.a[*]", "$.a[?(@.b==1)]", "$.a[0:2]")),
    sfn.JsonPath.uuid(),
]
FORMATS = [sfn.JsonPath.format("{}", each) for each in (NO_COUNTERPART[0], NO_COUNTERPART[-1])]
WITHOUT_F = ["customer/{id}", "customer/{event['id']!r}", "{a}/{b}", "customer/{}", "customer/{0}"]
BRACES = r"must not contain \{.*\}, which nothing replaces: for a value of the wor"
DURATION = r"must be .*\(got "
REFUSED: dict[str, Mistakes] = {
    "LockGuard": [
        *each("lock_name", r"must not start with \$: write JsonPath", "$.customer"),
        *each("lock_name", "must not contain {%, which", "a/{% $states.input.id %}", " {% $i %}"),
        *each("lock_name", r"must not contain \$\., .* JsonPath.format", "customer/$.id"),
        *each("lock_name", r"must not contain \$states, whi", "customer/$states.input.id"),
        *each("lock_name", r"must not contain \$\., which nothing", f"{Aws.REGION}/$.id"),
        *each("lock_name", r"must not contain States.Format\(,", "States.Format('{}', 1)"),
        *each("lock_name", "must be one JSONata expression as a who", "{% $a %}/{% $b %}", "{% %}"),
        *each("lock_name", BRACES, *WITHOUT_F, *(["other", name] for name in WITHOUT_F)),
        *each("lock_name", "uses a JSONPath that has no simple", *NO_COUNTERPART, *FORMATS),
        *each("lock_name", "uses a JSONPath that", sfn.JsonPath.format(by_path("$.template"), "x")),
        *each("lock_name", r"must be a JsonPath token .*'\$.id'\)\) \(got 'cu", f"cu/{A_TOKEN}"),
        *each("lock_name", DURATION, math.nan, b"x", {}, seconds(1), object()),
        *each("lock_name", "must be a list of 1 to 20 lock names", [], ["a"] * 21),
        *each("lock_name", r"must have each lock once \(got 'a'\)", ["a", "b", "a"]),
        *each("lock_name", "must have each lock once", ["{% $x %}", "{% $x %}"]),
        *each("lock_name", "must be a string of 1 to 512 bytes", ["a", ""]),
        *each("lock_name", "must have literals, JSONata or JsonPath", ["a", Stack().account]),
        *each("limit", "must be one JSONata expression as a whole", "{%%}"),
        *each("limit", "must be a number or JSONata, .* token", sfn.JsonPath.number_at("$.n")),
        *each("limit", DURATION, None, 10**400, "", "five", [], seconds(1)),
        *each("lease", "must be a whole number of seconds", millis(1500)),
        *each("lease", "must be from 1 second to 12 hours, such as the default of 1", hours(13)),
        *each("lease", DURATION, *NO_DURATIONS),
        # In an Express workflow the lease outlasts the wait.
        *each("lease", r"must be longer than max_wait \(60 s\)", None, **SEVERAL, express=True),
        *each("max_wait", "must be at most 1 day: .* 25,000 events", hours(25)),
        *each("max_wait", "must be a whole number of seconds", millis(1)),
        *each("max_wait", r"must be under 5 .* \(got '300 s'\)", seconds(300), express=True),
        *each("max_wait", r"must be 0 to .* 5 s, .*\(got '4 s'\)", seconds(4), waiting=QUEUE),
        *each(
            "max_wait", "must be at most 5 hours .* 25,000", seconds(20_001), waiting=TEN_SECONDS
        ),
        *each("max_wait", DURATION, *NO_DURATIONS),
        *each("max_hold", "must be a", 600, "10m", millis(1500)),
        *each("waiting", r"must be Waiting.poll\(\) in an Express .* tokens", QUEUE, express=True),
        *each("waiting", DURATION, *(Waiting.queue, "queue", 5, False, seconds(1))),
        *each("keep_alive", "must be a whole number of seconds", millis(1500)),
        *each("keep_alive", r"must be from 1 s to a third .*60 s.* \(got '0 s'\)", seconds(0)),
        *each("keep_alive", ".* of 60 s, so that two heartbeats may", seconds(21)),
        *each("keep_alive", ".* a third of the lease of 2 s", seconds(1), lease=seconds(2)),
        *each("keep_alive", "must be left out in an Express .* no task", seconds(20), express=True),
        *each("keep_alive", DURATION, *NO_DURATIONS),
        *each("only_newest", "must be True, the version of this caller", math.nan, None),
        *each("only_newest", "must be", -1, 1.5, "7", 2**53, "{% %}"),
        *each("only_newest", "must be left out with shared", 7, shared=True),
        *each("only_newest", "must be left out for several locks", 7, **SEVERAL),
        *each("on_timeout", DURATION, "", 7, [], {}, sfn.Pass, seconds(1)),
        *each("express", DURATION, None, 1, "true", sfn.StateMachineType.EXPRESS),
        *each("task", DURATION, None, "", 7, [], {}, sfn.Pass, seconds(1), Waiting.poll()),
        *each("service", DURATION, None, "arn:aws:lambda:…", 7, {}, seconds(1)),
        *each("scope", "must be the parent construct, such as", None, "Stack", 7, math.nan),
        *each("construct_id", DURATION, None, "", 7, math.nan),
        *each("wait", "is no argument; use max_wait", seconds(5)),
    ],
    "LockService": [
        *each("log_level", "must be one of DEBUG, INFO, WARN", "info", "TRACE", 20, None),
        *each("log_retention", "must be a member of aws_logs.RetentionDays", 30),
        *each("memory_size_mib", "must be a whole number from 128", 127, 10_241, "256", 256.0),
        *each("memory_size_mib", "must be a whole number from 128", *(True,)),
        *each("tracing", "must be True, False, or None for the default", lambda_.Tracing.ACTIVE),
        *each("recursive_loop", "must be True, False, or None for the default", "Allow"),
        *each("architecture", "must be a member of aws_lambda.Architecture, or None", "arm64"),
        *each("reaper_concurrency", "must be a whole number from 2", *(1, 1001, True, 2.5, "50")),
        *each("table_name", "must be 3 to 255 letters", "ab", "x" * 256, "my table", 12345),
        *each("removal_policy", "must be RETAIN, .*", RemovalPolicy.SNAPSHOT, "retain"),
        *each("deletion_protection", "must be True or False", "true"),
        *each("encryption_key", "must be an aws_kms.IKey", "alias/mine"),
        *each("table", "must be an aws_dynamodb.ITable", "locks"),
        *each("construct_id", r"must be a text that is not empty \(got None\)", None),
        *each("reapers", "is no argument; use reaper", *(False,)),
        *(
            ({flag: "false"}, rf"{flag}: must be True or False \(got 'false'\)")
            for flag in ("reaper", "durable", "administration", "lifecycle_events", "pace")
        ),
    ],
    "LockService.from_stack": [
        *each("stack_name", "must be the name of a stack: a letter, then up to 127", math.nan, ""),
        *each("stack_name", "must be the name of a stack", "9lives", "a/b", "x" * 129, None, 7),
        *each("encryption_key", r"must be an aws_kms.IKey \(got 'arn:…'\)", "arn:…"),
    ],
    "LockMonitoring": [
        *each("dashboard_name", "must be 1 to 255 letters, digits, hyphens and", "My locks"),
        *each("service", "must be", "Fairlock"),
        *each("alarms", "must be", {"lost": 1}),
        *each("alarm_topic", "must be", "arn"),
        *each("watch", "must be a list of at most 20 different", "deploy/*", [""], ["a*b"], ["*a"]),
        *each("watch", "must be", [7], ["ä"], ["a "], ["a", "a"], ["x"] * 21, None, ["x" * 255]),
        *each("watch", "must be", [f"{number:03}".ljust(200, "x") for number in range(15)]),
    ],
    "OptimisticUpdate": [
        *each("key", "", {}, "anna", {"account": "anna"}),
        *each("key", "", *({"account": each} for each in ({"BOOL": True}, {"N": 7}, {"S": ""}))),
        *each("key", "", *({"a": {"S": text}} for text in ("a/{% $x %}", "$.id", A_TOKEN))),
        *each("table", "", None, "accounts"),
        *each("task", "", None, sfn.Pass),
        *each("version_attribute", "", "", "a`b", "account"),
        ({"key": {"version": {"S": "x"}}}, "version_attribute: "),
        *each("retries", "", *(-1, 101, True, 1.5)),
    ],
    "Pace": [
        *each("rate", r"must be a pair such as \(10, Duration.minutes\(1", "10/1m", (10, 60)),
        *each("rate", "", (0, MINUTE), (-1, MINUTE), (10, Duration.days(32)), 10),
        *each("rate", "", (1_000, seconds(1)), (1, millis(1_500)), (10, MINUTE, 1)),
        *each("burst", "", 0, "{% 2 %}"),
        *each("max_wait", "", Duration.days(8), 30),
        *each("pace_name", "", "", "n" * 513, "$.vendor", 7),
        *each("on_too_late", "", "Skipped"),
        *each("service", "", None),
        *each("construct_id", "", ""),
    ],
}
OF_ALARMS: Mistakes = [
    *each("current_wait", "must be", 30, seconds(0)),
    *each("hand_off_latency", "must be", millis(1)),
    *each("lost", "must be", *(0, True)),
    *each("throttles", "must be", 1.5),
    *each("queue_length", "must be", "many"),
]
OF_A_WAIT: Mistakes = [
    *each("fallback", "must be a Duration, such as Duration", *NO_DURATIONS),
    *each("fallback", "must be from 10 s to 43200 s", seconds(0), seconds(9), seconds(43_201)),
    *each("fallback", "must be a whole", millis(10_500)),
    *each("fall_back", "is no argument; use fallback", Duration.minutes(5)),
]


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_argument_is_refused_by_its_name_before_anything_is_made(what: str) -> None:
    cases = Cases(App(), "Cases")
    for number, (given, told) in enumerate(REFUSED[what]):
        case = cases.case(f"Case{number}")
        place = Construct(case, "Place")
        make, right = MAKE[what]
        arguments = {"scope": place, "construct_id": "Made", **right(case), **given}
        with pytest.raises(InvalidRequest, match=f"^{told}") as refused:
            make(**arguments)
        error = refused.value
        assert str(error).startswith(f"{told.split(':')[0]}: {error.rule}"), given
        assert place.node.children == [], given


def test_a_wrong_option_is_refused_by_its_name() -> None:
    for make, mistakes in ((LockAlarms, OF_ALARMS), (a_wait, OF_A_WAIT)):
        for given, told in mistakes:
            with pytest.raises(InvalidRequest, match=f"^{told}"):
                make(**given)


def guarded_twice(case: Case) -> None:
    task = case.step("Charge")
    for name in ("First", "Second"):
        case.guard(name, task)


A_ROLE: Any = "arn:aws:iam::123456789012:role/x"
PRINCIPAL = "grantee: must be a principal, such as a function, a state machine or a role of aws_iam"
CALLED: list[tuple[Callable[[Case], object], str]] = [
    (
        lambda c: a_guard(c, "Guard", service=c.stack.locks, task=c.step("Charge")),
        "lock_name: is required: LockGuard(scope, construct_id, service, task, lock_name, l",
    ),
    (guarded_twice, "task: must be guarded once: make a state of its own for each"),
    (lambda _: a_guard.fencing_token_of(None, "Guard"), "scope: must be the parent construct, "),
    (lambda _: a_guard.owner_id_of(None, "Guard"), "scope: must be the parent construct"),
    (lambda c: a_guard.fencing_token_path_of(c, None), "construct_id: must be"),
    (
        lambda c: a_guard.fencing_token_of(c, guard_id="Guard"),
        "guard_id: is no argument; use one of",
    ),
    (
        lambda c: a_service.from_stack(c, "LocksProd"),
        "stack_name: is required: LockService.from_stack(scope, construct_id, stack_name, ",
    ),
    (
        lambda _: a_service.from_stack(None, "Shared", stack_name="Fairlock"),
        "scope: must be the parent construct, such as a Stack (got None)",
    ),
    # As of the client.
    (
        lambda _: a_service.from_stack("Fairlock"),
        "construct_id: is required: LockService.from_stack(scope, construct_id, stack_name, encr",
    ),
    (lambda c: c.shared().grant_use(A_ROLE), f"{PRINCIPAL} ("),
    (lambda c: c.shared().grant_client(A_ROLE), PRINCIPAL),
    (
        lambda c: c.shared().grant_durable(c.function("Durable"), key="arn:…"),
        "key: must be an aws_kms.IKey (got 'arn:…')",
    ),
    (
        lambda c: Pace(c, "P", service=c.shared(), pace_name="v"),  # type: ignore[call-arg]  # the mistake under test
        "rate: is required: Pace(scope, construct_id, service, pace_name, rate, burst, max_wait",
    ),
]


def test_a_wrong_call_is_refused_with_the_next_step() -> None:
    cases = Cases(App(), "Cases")
    for number, (call, told) in enumerate(CALLED):
        with pytest.raises(InvalidRequest, match=f"^{re.escape(told)}"):
            call(cases.case(f"Case{number}"))


def test_arguments_within_the_rules_are_accepted(guards: Cases) -> None:
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
        {**SEVERAL, "express": True, "lease": Duration.minutes(3)},
        {**SEVERAL, "express": True, "max_wait": seconds(0)},
    ]
    for props in within:
        guards.guard(**props)


def test_a_json_path_becomes_jsonata(guards: Cases) -> None:
    for path, expression in (
        ("$", "$states.input"),
        ("$.customer", "$states.input.customer"),
        ("$.a[0].b", "$states.input.a[0].b"),
        ("$['first name'].x", "$states.input.`first name`.x"),
        ("$.and", "$states.input.`and`"),
        ("$$.Execution.Name", "$states.context.Execution.Name"),
        ("$order.id", "$order.id"),
    ):
        assert guards.lock_name(by_path(path)) == f"{{% {expression} %}}"


def test_a_formatted_path_becomes_a_concatenation(guards: Cases) -> None:
    parts = by_path("$.a"), by_path("$$.Execution.Name")
    token = sfn.JsonPath.format("o'clock/{}/{}!", *parts)
    states = {"input": {"a": 7}, "context": {"Execution": {"Name": "run"}}}
    assert evaluate(guards.lock_name(token), states=states) == "o'clock/7/run!"


def test_other_braces_and_what_is_known_at_deployment_are_literal(guards: Cases) -> None:
    assert guards.lock_name(f"report-{Aws.REGION}").startswith("{'Fn::Join'")
    for name in ("deploy/${Stage}", '{"id":7}', "a{", "}{"):
        assert guards.lock_name(name) == name


def test_the_fencing_token_is_known_before_the_guard(guards: Cases) -> None:
    guard = guards.guard("Charge per-customer!")
    scope = guard.node.scope
    assert scope is not None
    assert guard.fencing_token == f"{{% {guard.fencing_token_path} %}}"
    assert LockGuard.fencing_token_of(scope, guard.node.id) == guard.fencing_token
    assert LockGuard.fencing_token_path_of(scope, guard.node.id) == guard.fencing_token_path
    assert LockGuard.fencing_token_of(guards, guard.node.id) != guard.fencing_token
    assert guard.fencing_token_path.startswith("$lock_Charge_per_customer__")
