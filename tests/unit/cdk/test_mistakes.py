"""What people get wrong with constructs: synth names the field, the rule and the next step.

More of guards are in `test_guard_arguments.py` and `test_machine_rules.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aws_cdk import App, Duration
from aws_cdk import aws_lambda as lambda_

from fairlock.cdk import LockAlarms, LockGuard, LockMonitoring, LockService, Pace, Waiting
from fairlock.errors import InvalidRequest
from tests.unit.cdk.guard_forms import Case, Cases

Mistake = Callable[[Case], object]
NO_LOCK = "must not lead to the task, which would run without the lock: lead to the guard again"


def leads_to_its_task(field: str, case: Case, *, chained: bool = False, **options: Any) -> object:  # noqa: ANN401 - a guard's
    call = case.call("Call")
    way: dict[str, Any] = {field: case.step("Log").next(call) if chained else call}
    return case.guard(task=call, **way, **options)


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
    "17 the task when the wait is over": (
        partial(leads_to_its_task, "on_timeout"),
        f"on_timeout: {NO_LOCK}",
    ),
    "17a a chain to the task when the wait is over": (
        partial(leads_to_its_task, "on_timeout", chained=True),
        f"on_timeout: {NO_LOCK}",
    ),
    "17b the task in a branch when the wait is over": (
        partial(leads_to_its_task, "on_timeout", keep_alive=Duration.seconds(20)),
        f"on_timeout: {NO_LOCK}",
    ),
    "17c the task when a newer came": (
        partial(leads_to_its_task, "on_superseded", only_newest=True),
        f"on_superseded: {NO_LOCK}",
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
