"""The protocol at random, against reference locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from fairlock.testing.fake_table import MemoryTable
from tests.property.bench import Bench
from tests.property.lock_machine import LockMachine
from tests.support import TABLE

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


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
