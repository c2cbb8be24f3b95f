"""What `hold` and `run` do on AWS's local runner."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration
from aws_durable_execution_sdk_python.exceptions import ExecutionError

from fairlock.durable import DurableLock, hold
from fairlock.errors import InvalidRequest, LockWaitTimeout, Superseded
from tests.support import owner
from tests.unit.durable.service import (
    LOCK,
    QUICK,
    Json,
    Service,
    error_of,
    executions_of,
    holding,
    options,
    result_of,
)


def test_executions_that_sleep_inside_take_turns_in_the_order_in_which_they_came() -> None:
    service, inside, overlaps, order = Service(), set[int](), list[int](), list[int]()

    def body(event: int, context: DurableContext) -> int:
        def come(_: object) -> None:
            overlaps.extend(inside - {event})
            inside.add(event)

        with hold(context, LOCK, service=service) as lock:
            context.step(come, name="come")
            context.wait(Duration.from_seconds(1))
            context.step(lambda _: inside.discard(event), name="go")
            context.step(lambda _: order.append(event), name="note")
            return lock.fencing_token

    with executions_of(body, service, time_scale=QUICK) as executions:
        started = [executions.start(number) for number in range(6)]
        tokens = [int(str(executions.end(arn).result)) for arn in started]
    assert (overlaps, order, tokens) == ([], [0, 1, 2, 3, 4, 5], sorted(tokens))
    assert service.state(LOCK).held == 0


def test_a_wait_costs_no_invocation() -> None:
    service = Service()
    service.take("anna")
    with executions_of(holding(service), service) as executions:
        arn = executions.start("a")
        executions.runner.wait_for_callback(arn, timeout=60)
        assert len(executions.invocations) == 1
        service.free("anna")
        executions.end(arn)
    assert len(executions.invocations) == 2


def test_a_lost_push_costs_one_fallback_period() -> None:
    service, lost = Service(), list[str]()
    service.take("anna")

    def free(name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and "task_token" in request and not lost:
            lost.append(request["task_token"])
            push, service.push = service.push, None
            service.free("anna")
            service.push = push

    service.after = free
    with executions_of(holding(service, fallback=10), service, time_scale=QUICK) as executions:
        assert executions.run("a").error is None
    assert service.called() == ["acquire", "acquire", "acquire", "release"]
    assert len(executions.invocations) == 2
    assert service.state(LOCK).held == 0


def test_uncontended_acquire_and_release_are_one_call_each() -> None:
    service = Service()
    assert result_of(holding(service, lambda _, lock: lock.name), service).result == f'"{LOCK}"'
    assert service.called() == ["acquire", "release"]


@pytest.mark.parametrize("error", [ValueError("boom"), ExecutionError("boom")], ids=repr)
def test_an_error_of_the_work_releases_and_one_of_the_sdk_does_not(error: Exception) -> None:
    """An error of the SDK ends the execution, and that end frees the lock."""
    service = Service()

    def work(*_: object) -> None:
        raise error

    kind, message = error_of(holding(service, work), service)
    assert (kind.rpartition(".")[2], message) == (type(error).__name__, "boom")
    is_released = isinstance(error, ValueError)
    assert service.called() == ["acquire", "release"][: 1 + is_released]


def test_max_wait_holds_to_two_seconds_and_the_queue_is_left() -> None:
    service, waited = Service(), list[float]()
    service.take("anna")

    def body(_event: object, context: DurableContext) -> str:
        began = context.step(lambda _: time.time(), name="began")
        try:
            with hold(context, LOCK, service=service, max_wait=2):
                return "held"
        except LockWaitTimeout as error:
            waited.append(time.time() - began)
            return str(error)

    with executions_of(body, service) as executions:
        result = executions.run("a")
    assert 2 <= waited[-1] < 4
    assert "was not handed over within 2 s; held by anna" in str(result.result)
    assert service.table.waiters(LOCK) == []


@pytest.mark.parametrize(("limit", "shared", "held"), [(1, False, 0), (2, False, 1), (20, True, 1)])
def test_a_busy_lock_is_skipped_without_a_trace(limit: int, *, shared: bool, held: bool) -> None:
    """One with a permit left, or that others share, is not busy."""
    service, given = Service(), {"limit": limit, "shared": shared, "data": {"job": 7}}
    service.take("anna", limit=limit, shared=shared)
    body = holding(service, lambda _, lock: lock is not None, skip=True, **given)
    assert result_of(body, service).result == ("true" if held else "false")
    assert service.called() == ["acquire", "release"][: 1 + held]
    assert service.calls[0][1]["data"] == {"job": 7}
    assert [holder.owner_name for holder in service.state(LOCK).holders] == ["anna"]
    assert service.table.waiters(LOCK) == []


def test_an_owner_id_is_not_shown() -> None:
    assert owner("secret") not in repr(DurableLock(LOCK, 7, owner("secret")))


def test_executions_learn_by_their_callbacks_or_at_once_that_a_newer_one_was_granted() -> None:
    service = Service()
    service.take("anna")

    def body(event: int, context: DurableContext) -> str:
        try:
            with hold(context, LOCK, service=service, only_newest=event, max_wait=60):
                return f"{event} ran"
        except Superseded as error:
            return f"{error.version} is superseded by {error.newest}"

    with executions_of(body, service) as executions:
        started = []
        for version in (2, 9, 4):
            started.append(executions.start(version))
            executions.runner.wait_for_callback(started[-1], timeout=60)
        service.free("anna")
        results = [str(executions.end(arn).result) for arn in started]
        assert results == ['"2 is superseded by 9"', '"9 ran"', '"4 is superseded by 9"']
        assert service.state(LOCK).held == 0
        assert service.table.waiters(LOCK) == []
        assert executions.run(8).result == '"8 is superseded by 9"'


# What `hold` refuses, before anything is asked.


def test_shared_and_the_newest_only_do_not_go_together() -> None:
    """`tests/contracts/test_rules.py` has the rules of single arguments."""
    with pytest.raises(InvalidRequest, match="only_newest: must be left out"):
        options(only_newest=7, shared=True)
    assert options(shared=True).request["shared"]
    assert "shared" not in options().request


def test_a_time_is_a_number_of_seconds_or_a_timedelta() -> None:
    given = options(lease=90, max_wait=3600, fallback=30)
    spans = {name: timedelta(seconds=n) for name, n in (("lease", 90), ("fallback", 30))}
    assert given == options(**spans, max_wait=timedelta(hours=1))
    assert (given.request["lease_seconds"], given.max_wait, given.fallback) == (90, 3600, 30)


@pytest.mark.parametrize(
    ("max_wait", "fallback"),
    [
        (timedelta(seconds=1), 300),
        (timedelta(days=3), 300),
        (timedelta(days=7), 605),
        (timedelta(days=366), 31_623),
        (None, 300),
    ],
)
def test_a_long_wait_has_long_fallback_periods(max_wait: timedelta | None, fallback: int) -> None:
    """An execution may have 3,000 operations, and each period takes two."""
    found = options(max_wait=max_wait)
    assert found.fallback == fallback
    assert 2 * (found.max_wait or 0) / found.fallback <= 2_000


def test_fallback_periods_that_are_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="from 605 s to 12 h"):
        options(max_wait=timedelta(days=7), fallback=60)


def test_a_hold_without_with_is_warned_of() -> None:
    def body(_event: object, context: DurableContext) -> str:
        with pytest.warns(RuntimeWarning, match=r"never acquired: write `with hold\(context, 'cu"):
            hold(context, LOCK, service=Service())
        return "not alone"

    assert result_of(body).result == '"not alone"'
