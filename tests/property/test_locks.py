"""The searches with random requests, and the mutants that they have to find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from fairlock.errors import LockItemMalformed, LockStoreUnavailable
from fairlock.protocol import outcomes
from fairlock.testing.fake_table import MemoryTable
from tests.property.bench import Bench
from tests.property.lock_machine import LockMachine
from tests.property.mutants import MUTANTS, QUEUE_MUTANTS
from tests.property.queue_machine import QueueMachine
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


# The protocol at random, against reference locks.


def test_any_order_of_calls_faults_and_clocks_gives_the_answers_of_the_reference() -> None:
    class InMemory(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    run_state_machine_as_test(InMemory, settings=settings(max_examples=100, stateful_step_count=40))


def test_motos_dynamodb_gives_the_same_answers(dynamodb: DynamoDBClient) -> None:
    """Else the table in memory, on which the other examples ran, would be a wrong DynamoDB."""

    def make_bench() -> Bench:
        for item in dynamodb.scan(TableName=TABLE)["Items"]:
            key = {name: item[name] for name in ("pk", "sk")}
            dynamodb.delete_item(TableName=TABLE, Key=key)
        return Bench(dynamodb)

    class OverMoto(LockMachine):
        pass

    OverMoto.make_bench = staticmethod(make_bench)
    run_state_machine_as_test(OverMoto, settings=settings(max_examples=4, stateful_step_count=25))


# The queue at random, against what must hold of the table.


def test_any_order_of_arrivals_releases_and_deaths_serves_everybody_in_order() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=40, stateful_step_count=40)
    )


# The property test can fail: each wrong protocol is found by the same machine.

BUDGET = settings(
    max_examples=150,
    stateful_step_count=40,
    phases=[Phase.generate],  # no one reads the counterexample, so it need not be short
    report_multiple_bugs=False,
    print_blob=False,
)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_found(name: str) -> None:
    benches: list[Bench] = []

    class Wrong(LockMachine):
        @staticmethod
        def make_bench() -> Bench:
            benches.append(Bench(MemoryTable(), mutate=MUTANTS[name]))
            return benches[-1]

    # A wrong protocol may also leave an item that makes no sense to the store.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed)):
        run_state_machine_as_test(Wrong, settings=BUDGET)
    assert benches[-1].client.mutated, "the wrong request was never sent"


@pytest.mark.parametrize("name", QUEUE_MUTANTS)
def test_a_wrong_queue_is_found(name: str) -> None:
    class Wrong(QueueMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable(), mutate=QUEUE_MUTANTS[name]))

    # Or the store goes round in circles until its retry budget ends.
    with pytest.raises((AssertionError, KeyError, LockItemMalformed, LockStoreUnavailable)):
        run_state_machine_as_test(Wrong, settings=BUDGET)


def test_a_contender_that_does_not_wait_for_the_end_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_over(expires_at_ms: int, *, date_ms: int) -> bool:
        return date_ms >= expires_at_ms - 1_500

    monkeypatch.setattr(outcomes, "is_over", is_over)

    class Hasty(LockMachine):
        make_bench = staticmethod(lambda: Bench(MemoryTable()))

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Hasty, settings=BUDGET)
