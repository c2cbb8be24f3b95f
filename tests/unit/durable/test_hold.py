"""What `hold` and `run` do on AWS's local runner."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import (
    Duration,
    MapConfig,
    NestingType,
    ParallelConfig,
)
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestResult

from leasehold.durable import DurableLock, hold, run
from leasehold.errors import InvalidRequest, LockStoreMisconfigured, LockWaitTimeout
from tests.support import acquire, owner
from tests.support import release as release_request
from tests.unit.durable.runner import Body, executions_of
from tests.unit.durable.service import Json, Service, unavailable

LOCK = "customer/42"
QUICK = 0.01
A_SECOND = Duration.from_seconds(1)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def result_of(body: Body, service: Service | None = None) -> DurableFunctionTestResult:
    with executions_of(body, service, time_scale=QUICK) as executions:
        return executions.run("a")


def error_of(body: Body, service: Service | None = None) -> tuple[str, str]:
    """Class and text of the error by which the execution failed."""
    error = result_of(body, service).error
    assert error is not None
    return str(error.type), str(error.message)


def test_executions_that_sleep_inside_take_turns_in_the_order_in_which_they_came() -> None:
    service, inside, overlaps, order = Service(), set[int](), list[int](), list[int]()

    def body(event: int, context: DurableContext) -> int:
        def come(_: object) -> None:
            overlaps.extend(inside - {event})
            inside.add(event)

        with hold(context, LOCK, service=service) as lock:
            context.step(come, name="come")
            context.wait(A_SECOND)
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
    service.store().acquire(acquire("anna", lock_name=LOCK))

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    with executions_of(body, service) as executions:
        arn = executions.start("a")
        executions.runner.wait_for_callback(arn, timeout=10)
        assert len(executions.invocations) == 1
        service.store().release(release_request("anna", lock_name=LOCK))
        executions.end(arn)
    assert len(executions.invocations) == 2


def test_a_lost_push_costs_one_fallback_period() -> None:
    service, lost = Service(), list[str]()
    service.store().acquire(acquire("anna", lock_name=LOCK))

    def free(name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and "task_token" in request and not lost:
            lost.append(request["task_token"])
            push, service.push = service.push, None
            service.store().release(release_request("anna", lock_name=LOCK))
            service.push = push

    service.after = free

    def body(_event: object, context: DurableContext) -> int:
        fallback = Duration.from_seconds(10)
        with hold(context, LOCK, service=service, fallback=fallback) as lock:
            return lock.fencing_token

    with executions_of(body, service, time_scale=QUICK) as executions:
        assert executions.run("a").error is None
    assert [name for name, _ in service.calls] == ["acquire", "acquire", "acquire", "release"]
    assert len(executions.invocations) == 2
    assert service.state(LOCK).held == 0


def test_uncontended_acquire_and_release_are_one_call_each() -> None:
    service = Service()
    result_of(lambda _event, context: run(context, LOCK, lambda _: None, service=service), service)
    assert [name for name, _ in service.calls] == ["acquire", "release"]


def test_run_returns_what_the_work_returns() -> None:
    service = Service()
    result = result_of(
        lambda _event, context: run(context, LOCK, lambda lock: lock.name, service=service),
        service,
    )
    assert result.result == f'"{LOCK}"'


def test_an_error_of_the_work_leaves_by_its_own_name_after_the_release() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            message = "boom"
            raise ValueError(message)

    kind, message = error_of(body, service)
    assert kind.endswith("ValueError")
    assert message == "boom"
    assert service.state(LOCK).held == 0


def test_max_wait_holds_to_two_seconds_and_the_queue_is_left() -> None:
    service = Service()
    service.store().acquire(acquire("anna", lock_name=LOCK))
    waited: list[float] = []

    def body(_event: object, context: DurableContext) -> str:
        began = context.step(lambda _: time.time(), name="began")
        try:
            with hold(context, LOCK, service=service, max_wait=Duration.from_seconds(2)):
                return "held"
        except LockWaitTimeout as error:
            waited.append(time.time() - began)
            return str(error)

    with executions_of(body, service) as executions:
        result = executions.run("a")
    assert 2 <= waited[-1] < 4
    assert "was not handed over within 2 s; held by anna" in str(result.result)
    assert service.table.waiters(LOCK) == []


def test_a_busy_lock_is_skipped_and_nothing_is_left_behind() -> None:
    service = Service()
    service.store().acquire(acquire("anna", lock_name=LOCK))

    def body(_event: object, context: DurableContext) -> str:
        with hold(context, LOCK, service=service, skip=True) as lock:
            return "busy" if lock is None else "held"

    assert result_of(body, service).result == '"busy"'
    assert [name for name, _ in service.calls] == ["acquire"]
    assert service.table.waiters(LOCK) == []


def test_a_lock_with_permits_left_is_not_skipped() -> None:
    service = Service()
    service.store().acquire(acquire("anna", lock_name=LOCK, limit=2))

    def body(_event: object, context: DurableContext) -> str:
        with hold(context, LOCK, service=service, skip=True, limit=2, data={"job": 7}) as lock:
            return "busy" if lock is None else "held"

    assert result_of(body, service).result == '"held"'
    assert service.requests[0]["data"] == {"job": 7}


def test_a_lock_that_was_taken_away_is_reported_at_the_end() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service) as lock:
            context.step(lambda _: take_away(service, lock), name="somebody takes it")

    kind, message = error_of(body, service)
    assert kind.endswith("LockLost")
    assert "was not held any more" in message


def take_away(service: Service, lock: DurableLock) -> None:
    """A release by hand, and another owner since."""
    holder = service.state(LOCK).holder(lock.owner_id)
    assert holder is not None
    service.store().release(release_request("", lock_name=LOCK, owner_id=lock.owner_id))
    service.store().acquire(acquire("ben", lock_name=LOCK))
    service.store().release(release_request("ben", lock_name=LOCK))


def test_a_loss_is_noted_on_the_error_of_the_work() -> None:
    service, notes = Service(), list[str]()

    def body(_event: object, context: DurableContext) -> None:
        try:
            with hold(context, LOCK, service=service) as lock:
                context.step(lambda _: take_away(service, lock), name="somebody takes it")
                int("no number")
        except ValueError as error:
            notes.extend(error.__notes__)

    result_of(body, service)
    assert notes[-1].startswith("At the end of the lock: lock 'customer/42'")


def test_an_acquisition_that_is_released_while_it_waits_is_lost() -> None:
    service = Service()
    service.store().acquire(acquire("anna", lock_name=LOCK))

    def release_waiter(name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and len(service.calls) == 1:
            place = service.table.waiters(LOCK)[0]["sk"]["S"]
            assert place
            service.store().release(
                release_request("", lock_name=LOCK, owner_id=request["owner_id"], waits=True)
            )

    service.after = release_waiter

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    assert error_of(body, service)[0].endswith("LockLost")


def test_a_service_that_does_not_answer_is_no_refusal() -> None:
    service = Service(before=unavailable)

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    kind, message = error_of(body, service)
    assert kind.endswith("LockStoreUnavailable")
    assert "did not answer" in message


def test_what_was_granted_to_a_call_without_an_answer_is_given_back() -> None:
    service = Service()

    def lose_replies(name: str, _request: Json, _answer: Json) -> None:
        if name == "acquire":
            unavailable()

    service.after = lose_replies

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    assert error_of(body, service)[0].endswith("LockStoreUnavailable")
    assert service.state(LOCK).held == 0
    assert len({owner_id for _, owner_id in service.calls}) == 1


def test_an_outage_of_the_release_does_not_replace_the_result() -> None:
    service = Service()

    def fail_releases(name: str, _request: Json) -> None:
        if name == "release":
            unavailable()

    service.before = fail_releases
    result = result_of(
        lambda _event, context: run(context, LOCK, lambda _: "done", service=service), service
    )
    assert result.result == '"done"'
    assert service.state(LOCK).held == 1  # The end of the execution frees it.


@pytest.mark.parametrize(
    "error", [InvalidRequest(field="limit", rule="too high"), LockStoreMisconfigured("no table")]
)
def test_a_request_that_can_never_succeed_is_not_repeated(error: Exception) -> None:
    service = Service()

    def refuse(_name: str, _request: Json) -> None:
        raise error

    service.before = refuse
    caught: list[Exception] = []

    def body(_event: object, context: DurableContext) -> None:
        try:
            with hold(context, LOCK, service=service):
                pass
        except (InvalidRequest, LockStoreMisconfigured) as found:
            caught.append(found)

    result_of(body, service)
    assert [(type(found), str(found)) for found in caught] == [(type(error), str(error))]


def test_a_release_that_can_never_succeed_does_not_replace_the_result() -> None:
    service = Service()

    def refuse(name: str, _request: Json) -> None:
        if name == "release":
            message = "no permission"
            raise LockStoreMisconfigured(message)

    service.before = refuse
    result = result_of(
        lambda _event, context: run(context, LOCK, lambda _: "done", service=service), service
    )
    assert result.result == '"done"'


def test_two_holds_nest() -> None:
    service, held = Service(), list[Any]()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, "outer", service=service), hold(context, "inner", service=service):
            context.wait(A_SECOND)
            context.step(
                lambda _: held.append([service.state("outer").held, service.state("inner").held]),
                name="count",
            )

    assert result_of(body, service).error is None
    assert held == [[1, 1]]
    assert [service.state("outer").held, service.state("inner").held] == [0, 0]


def test_one_lock_held_twice_in_a_row_is_acquired_twice() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> list[int]:
        return [
            run(context, LOCK, lambda lock: lock.fencing_token, service=service) for _ in range(2)
        ]

    first, second = map(int, str(result_of(body, service).result).strip("[]").split(","))
    assert second == first + 1


def test_a_lock_inside_itself_is_an_error_at_once() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service), hold(context, LOCK, service=service):
            pass

    kind, message = error_of(body, service)
    assert kind.endswith("InvalidRequest")
    assert "it would wait for itself" in message
    assert service.state(LOCK).held == 0


def test_a_lock_inside_itself_is_found_in_child_contexts_and_branches() -> None:
    service, messages = Service(), list[str]()

    def inner(context: DurableContext) -> None:
        try:
            with hold(context, LOCK, service=service):
                pass
        except InvalidRequest as error:
            messages.append(error.field)

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            context.run_in_child_context(inner, name="child")
            context.run_in_child_context(
                lambda child: child.run_in_child_context(inner), name="grandchild"
            )
            context.parallel([inner, inner], name="branches")

    assert result_of(body, service).error is None
    assert messages[:4] == ["name"] * 4


STALE_TOKEN = "Invalid checkpoint token"
"""The local runner may invoke a function for a callback before the last invocation has ended."""


def branches(nesting: NestingType) -> tuple[DurableFunctionTestResult, int, int]:
    """What the execution returns, how many were inside at once, and how many hold the lock then."""
    service, inside, most = Service(), list[int](), list[int]()

    def branch(context: DurableContext, item: int, _index: int, _items: Any) -> int:  # noqa: ANN401 - the SDK's
        def come(_: object) -> None:
            inside.append(item)
            most.append(len(set(inside)))

        with hold(context, LOCK, service=service) as lock:
            context.step(come, name="come")
            context.wait(A_SECOND)
            context.step(lambda _: inside.remove(item), name="go")
            return lock.fencing_token

    def body(_event: object, context: DurableContext) -> list[int]:
        mapped: list[int] = context.map(
            [0, 1, 2], branch, name="map", config=MapConfig(nesting_type=nesting)
        ).get_results()
        others = [lambda child, i=i: branch(child, i, i, ()) for i in (3, 4, 5)]
        return [
            *mapped,
            *context.parallel(
                others, name="parallel", config=ParallelConfig(nesting_type=nesting)
            ).get_results(),
        ]

    result = result_of(body, service)
    return result, max(most), service.state(LOCK).held


@pytest.mark.parametrize("nesting", NestingType)
def test_branches_of_parallel_and_of_map_take_turns(nesting: NestingType) -> None:
    for _ in range(3):
        result, at_once, held = branches(nesting)
        if result.error is None or result.error.message != STALE_TOKEN:
            break
    assert result.error is None
    tokens = str(result.result).strip("[]").split(", ")
    assert (len(set(tokens)), at_once, held) == (6, 1, 0)


def test_a_stopped_execution_is_reaped_and_its_waiter_too() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            context.create_callback(name="never").result()

    with executions_of(body, service, time_scale=QUICK) as executions:
        holder, waiter = executions.start("a"), executions.start("b")
        executions.runner.wait_for_callback(holder, name="never", timeout=10)
        executions.runner.wait_for_callback(waiter, name=f"{LOCK}: granted 1", timeout=10)
        for arn in (holder, waiter):
            executions.stop(arn)
            service.over.add(arn)
        assert service.reap(waiter).waiters == 1
        assert service.reap(holder).holders == 1
    assert service.state(LOCK).held == 0


def test_an_owner_id_is_not_shown() -> None:
    assert owner("secret") not in repr(DurableLock(LOCK, 7, owner("secret")))
