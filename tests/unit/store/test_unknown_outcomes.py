"""Errors, short answers and slow answers of AWS, and pushes that come twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.stub import Stubber
from mypy_boto3_stepfunctions import SFNClient

from fairlock.aws.executions import Delivery, Execution, Liveness, StepFunctions
from fairlock.aws.lock_table import ConditionFailed, LockTable, Written
from fairlock.aws.retry import RetryBudget
from fairlock.errors import LockStoreMisconfigured, LockStoreUnavailable
from fairlock.protocol import schema
from fairlock.protocol.model import Grant, ReleaseRequest
from fairlock.protocol.outcomes import AlreadyHolder, Refusal, RefusalReason, Released, judge
from fairlock.store.context import LockContext
from fairlock.testing.fake_table import MemoryTable
from tests.support import (
    LOCK,
    TABLE,
    FakeClock,
    acquire,
    heartbeat,
    moved_clock,
    owner,
    release,
    store_over,
)
from tests.support.capacity import item_bytes
from tests.support.faults import THROTTLES, client_error, defects, unknown_outcomes
from tests.support.faulty_table import FaultyTable, fault
from tests.support.operations import Operations
from tests.support.store_bench import RUN, Bench
from tests.support.workflows import FakeWorkflows
from tests.unit.workflows.test_step_functions import GRANT, TOKEN

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


# Refused is not unknown: what DynamoDB did not answer is an error, no grant and no refusal.

Operation = Callable[[Operations], object]
OPERATIONS: dict[str, Operation] = {
    "acquire": lambda store: store.acquire(acquire("anna")),
    "heartbeat": lambda store: store.heartbeat(heartbeat("anna")),
    "release": lambda store: store.release(release("anna")),
}
operations = pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS.keys())


def items(dynamodb: DynamoDBClient) -> list[Any]:
    return list(dynamodb.scan(TableName=TABLE)["Items"])


@operations
@pytest.mark.parametrize("name", unknown_outcomes())
def test_a_failure_that_says_nothing_about_the_write_is_lock_store_unavailable(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation, name: str
) -> None:
    error = unknown_outcomes()[name]
    store = store_over(FaultyTable(dynamodb, fault(error)), clock)
    with pytest.raises(LockStoreUnavailable, match="repeat the call") as caught:
        operate(store)
    assert caught.value.__cause__ is error


@operations
@pytest.mark.parametrize("name", defects())
def test_a_defect_of_the_set_up_names_the_table_and_what_to_do(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation, name: str
) -> None:
    error = defects()[name]
    error.response["ResponseMetadata"]["RetryAttempts"] = 0
    store = store_over(FaultyTable(dynamodb, fault(error)), clock)
    with pytest.raises(LockStoreMisconfigured, match=f"^lock table '{TABLE}' in us-east-1: ") as e:
        operate(store)
    assert (e.value.table_name, e.value.region, e.value.code) == (TABLE, "us-east-1", name)
    assert e.value.__cause__ is error


@operations
def test_a_repeat_that_is_refused_leaves_the_outcome_of_the_first_sending_unknown(
    dynamodb: DynamoDBClient, clock: FakeClock, operate: Operation
) -> None:
    """The reply to the first sending got lost, and the credentials are over at the second."""
    error = client_error("ExpiredTokenException")
    assert error.response["ResponseMetadata"]["RetryAttempts"] == 2
    with pytest.raises(LockStoreUnavailable, match="the first sending may have been written"):
        operate(store_over(FaultyTable(dynamodb, fault(error)), clock))


@pytest.mark.parametrize("code", THROTTLES)
def test_throttled_on_every_call_is_never_a_grant_and_writes_nothing(
    dynamodb: DynamoDBClient, clock: FakeClock, code: str
) -> None:
    store = store_over(FaultyTable(dynamodb, fault(client_error(code))), clock)
    for _ in range(3):
        with pytest.raises(LockStoreUnavailable):
            store.acquire(acquire("anna"))
    assert items(dynamodb) == []


class NaiveTable(LockTable):
    """Takes every failure for a failed condition."""

    def update(self, update: Any) -> Written | ConditionFailed:  # noqa: ANN401 - passed on only
        try:
            return super().update(update)
        except LockStoreUnavailable:
            return ConditionFailed({schema.HELD: {"N": "1"}}, date_ms=0)


def test_without_the_translation_a_throttle_would_be_reported_as_a_refusal(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    """The negative control: no one holds the lock, and the caller is told that it is held."""
    client: Any = FaultyTable(dynamodb, fault(client_error("InternalServerError", 500)))
    table = NaiveTable(client, TABLE, aws_clock=moved_clock(clock))
    store = Operations(LockContext(table=table))
    answer = store.acquire(acquire("anna"))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.holders) == (RefusalReason.HELD, ())


def test_a_takeover_that_got_no_answer_is_unknown_too(
    dynamodb: DynamoDBClient, clock: FakeClock
) -> None:
    store_over(dynamodb, clock).acquire(acquire("anna", lease_ms=1_000))
    before = items(dynamodb)
    clock.advance(10)
    faulty = FaultyTable(dynamodb, fault(client_error("InternalServerError", 500), 2))
    with pytest.raises(LockStoreUnavailable):
        store_over(faulty, clock).acquire(acquire("ben"))
    assert items(dynamodb) == before


# What DynamoDB sends back has to be read: no more is asked for than is needed.

HOLDERS = 50


@dataclass
class WeighingTable:
    """Passes requests on to a table in memory; notes the bytes of each answer to an update.

    Args:
        always: what every update asks for, whatever it says.
    """

    always: str | None = None
    inner: MemoryTable = field(default_factory=MemoryTable)
    answers: list[int] = field(default_factory=list)

    def update_item(self, **request: Any) -> Any:  # noqa: ANN401 - as boto3 takes and answers it
        if self.always is not None:
            request["ReturnValues"] = self.always
        answer = self.inner.update_item(**request)
        self.answers.append(item_bytes(answer["Attributes"]))
        return answer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the table has
        return getattr(self.inner, name)


@pytest.mark.parametrize(
    ("always", "grows", "has_the_record"),
    [(None, False, False), ("ALL_OLD", True, False), ("ALL_NEW", True, True)],
)
def test_the_answer_to_an_acquire_has_no_record_of_a_holder(
    always: str | None,
    grows: bool,  # noqa: FBT001 - a parameter of the test
    has_the_record: bool,  # noqa: FBT001 - same
) -> None:
    table = WeighingTable(always)
    store = store_over(table, FakeClock())
    for number in range(HOLDERS):
        store.acquire(acquire(f"holder-{number:02d}", limit=HOLDERS))
    first, second, last = table.answers[0], table.answers[1], table.answers[-1]
    assert (last > 10 * second) == grows
    assert (first > 0) == has_the_record


@pytest.mark.parametrize("tells_grant", [False, True])
def test_a_release_asks_for_the_item_only_if_it_has_to_tell_of_the_grant(
    tells_grant: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    table, clock = WeighingTable(), FakeClock()
    store = store_over(table, clock)
    granted = store.acquire(acquire("anna"))
    assert isinstance(granted, Grant)
    clock.advance(3)
    request = ReleaseRequest(lock_name=LOCK, owner_id=owner("anna"), tells_grant=tells_grant)
    released = store.release(request)
    assert isinstance(released, Released)
    told = (3_000, granted.fencing_token) if tells_grant else (None, None)
    assert (released.held_ms, released.fencing_token) == told
    assert (table.answers[-1] > 0) == tells_grant
    assert store.release(request) == Released(lock_name=LOCK, owner_id=owner("anna"))


# A grant that is told again may be older than it seems: it is renewed if half of it is over.

LEASE_MS = 60_000
SLOW_MS = 90_000


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    return Bench(MemoryTable(), clock)


def told(bench: Bench) -> Grant:
    """Ben asks again, and hears of what he was handed by another caller whose clock is slow."""
    place = {"waits": True, "poll_interval_ms": 5_000}
    bench.store().acquire(acquire("anna", lease_ms=10 * LEASE_MS))
    bench.store().acquire(acquire("ben", **place))
    bench.clock.skew_ms = -SLOW_MS
    bench.store().release(release("anna"))
    bench.clock.skew_ms = 0
    bench.clock.advance(5)
    answer = bench.store().acquire(acquire("ben", **place))
    assert isinstance(answer, Grant)
    return answer


def test_the_end_that_a_slow_clock_has_written_is_corrected_before_anybody_relies_on_it(
    bench: Bench,
) -> None:
    assert told(bench).expires_at_ms == bench.clock.now_ms + LEASE_MS + 1_500


def test_without_that_the_lease_would_be_over_for_others_already(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_fresh(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the real one
        verdict = judge(*args, **kwargs)
        return replace(verdict, is_fresh=True) if isinstance(verdict, AlreadyHolder) else verdict

    monkeypatch.setattr("fairlock.store.acquire.judge", all_fresh)
    assert told(bench).expires_at_ms < bench.clock.now_ms


def test_a_grant_that_is_fresh_costs_nothing_to_tell_again(bench: Bench) -> None:
    client, store = bench.counting()
    first = store.acquire(acquire("anna"))
    bench.clock.advance(LEASE_MS / 2_000 - 1)
    again = store.acquire(acquire("anna"))
    assert isinstance(first, Grant)
    assert again == replace(first, repeated=True)
    assert client.calls == ["update_item"] * 2


# Step Functions may be slow or busy: calls of ours come to their end nevertheless.

PERMITS = 5
SECONDS_AN_ANSWER = 4.5
"""Three tries of 1.5 s each."""
MOST_SECONDS = 10.0
THROTTLED = "ThrottlingException"


@pytest.fixture
def full_bench(clock: FakeClock) -> Bench:
    """All permits are out to workflows whose leases are over."""
    full_bench = Bench(MemoryTable(), clock)
    for number in range(PERMITS):
        store = full_bench.store()
        store.acquire(acquire(f"w{number}", execution_arn=f"{RUN}{number}", limit=PERMITS))
    clock.advance(100)
    return full_bench


def seconds_to_refuse(bench: Bench) -> float:
    def hang(_execution_arn: str) -> Execution:
        bench.clock.advance(SECONDS_AN_ANSWER)
        return Execution(Liveness.UNKNOWN)

    began = bench.clock.monotonic()
    answer = bench.store(workflows=FakeWorkflows(runs=hang)).acquire(acquire("anna", limit=PERMITS))
    assert isinstance(answer, Refusal)
    assert answer.liveness_unknown
    return bench.clock.monotonic() - began


def test_an_acquire_does_not_ask_about_one_workflow_after_another_while_no_one_answers(
    full_bench: Bench,
) -> None:
    assert seconds_to_refuse(full_bench) < MOST_SECONDS


def test_without_a_check_of_the_clock_it_would_outlast_its_function(
    full_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RetryBudget, "is_spent", lambda _self, *, since: False)  # noqa: ARG005 - as the real one
    assert seconds_to_refuse(full_bench) > 20


def push(workflows: SFNClient, clock: FakeClock) -> Delivery:
    retry_budget = RetryBudget(clock=clock, random=lambda: 0.5)
    return StepFunctions(lambda: workflows, retry_budget).wake_waiter(TOKEN, GRANT)


def fails(stub: Stubber, code: str, *, retries: int = 0) -> None:
    meta: Any = {"RetryAttempts": retries}
    stub.add_client_error("send_task_success", code, response_meta=meta)


def test_a_push_that_step_functions_is_too_busy_for_is_repeated(
    workflows: SFNClient, clock: FakeClock
) -> None:
    with Stubber(workflows) as stub:
        fails(stub, THROTTLED, retries=2)
        fails(stub, THROTTLED, retries=2)
        stub.add_response("send_task_success", {})
        assert push(workflows, clock) is Delivery.DELIVERED
        stub.assert_no_pending_responses()


def test_but_not_for_ever(workflows: SFNClient, clock: FakeClock) -> None:
    began = clock.monotonic()
    with Stubber(workflows) as stub:
        for _ in range(200):
            fails(stub, THROTTLED)
        assert push(workflows, clock) is Delivery.UNKNOWN
    assert 5 <= clock.monotonic() - began < 6


@pytest.mark.parametrize(("retries", "pushed"), [(0, Delivery.GONE), (1, Delivery.UNKNOWN)])
def test_a_task_that_is_gone_after_a_repeat_may_have_heard_the_first_sending(
    workflows: SFNClient, clock: FakeClock, retries: int, pushed: Delivery
) -> None:
    with Stubber(workflows) as stub:
        fails(stub, "TaskTimedOut", retries=retries)
        assert push(workflows, clock) is pushed
