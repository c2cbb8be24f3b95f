"""What the queue promises beyond exclusion; a run that polls breaks each of it."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from examples.demo.checks import Check
from examples.demo.facts import Execution, Incident, Mode, Run
from examples.demo.ledger import Statement, statement, statements
from examples.demo.task.charge import CardDeclined, charge
from examples.demo.turns import (
    granted_in_order_of_entry,
    less_idle_than,
    waiting_cost_nothing,
    woken,
)
from tests.demo.builders import guarded_execution, queued, timed_out

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


EMPTY = Run(title="Nobody", mode=Mode.QUEUE, executions=(), accounts=())


def of(*executions: Execution) -> Run:
    return replace(EMPTY, executions=executions)


def test_a_run_in_the_queue_keeps_every_promise(queue_run: Run, polling_run: Run) -> None:
    assert granted_in_order_of_entry(queue_run) == Check(
        claim="waiters got in in the order of entry",
        passed=True,
        evidence="6 pairs compared, 0 times someone was overtaken",
    )
    assert waiting_cost_nothing(queue_run, fallback_seconds=10) == Check(
        claim="waiting cost no state transitions",
        passed=True,
        evidence="4 transitions, also after 2.1 s of waiting",
    )
    assert less_idle_than(queue_run, polling_run) == Check(
        claim="the lock was idle between holders for less time than with polling",
        passed=True,
        evidence="median 40 ms, with polling 500 ms",
    )


def test_one_who_was_overtaken_fails() -> None:
    first = guarded_execution("a-1", asked_ms=0, granted_ms=100, released_ms=1_000)
    third = guarded_execution("a-3", asked_ms=20, granted_ms=1_050, released_ms=2_000)
    second = guarded_execution("a-2", asked_ms=10, granted_ms=2_050, released_ms=3_000)
    run = of(*map(queued, (first, third, second)))
    assert granted_in_order_of_entry(run) == Check(
        claim="waiters got in in the order of entry",
        passed=False,
        evidence="3 pairs compared, 1 times someone was overtaken",
    )


def test_a_newcomer_on_another_account_overtakes_no_one() -> None:
    waiter = guarded_execution("a-1", "alice", asked_ms=0, granted_ms=5_000, released_ms=6_000)
    other = guarded_execution("b-1", "bob", asked_ms=100, granted_ms=150, released_ms=1_000)
    assert "0 pairs" in granted_in_order_of_entry(of(waiter, other)).evidence


def test_polling_pays_for_waiting(polling_run: Run) -> None:
    check = waiting_cost_nothing(polling_run, fallback_seconds=10)
    assert not check.passed
    assert check.evidence == "4 paid for more than the 5 transitions of the cheapest"


@pytest.mark.parametrize(("granted_ms", "passed"), [(11_050, True), (9_050, False)])
def test_one_transition_more_is_allowed_for_each_fallback_period_waited(
    granted_ms: int, *, passed: bool
) -> None:
    first = queued(guarded_execution("a-1", granted_ms=100, released_ms=granted_ms - 50))
    waited = guarded_execution("a-2", granted_ms=granted_ms, released_ms=granted_ms + 1_000)
    asked_twice = timed_out(queued(waited), 0)
    check = waiting_cost_nothing(of(first, asked_twice), fallback_seconds=10)
    assert check.passed is passed


def test_a_queue_that_is_idle_for_as_long_as_a_poller_fails(polling_run: Run) -> None:
    assert not less_idle_than(polling_run, polling_run).passed


def test_runs_in_which_no_one_waited_prove_nothing(queue_run: Run) -> None:
    alone = of(queued(guarded_execution()))
    for run in (EMPTY, alone):
        assert not granted_in_order_of_entry(run).passed
        assert not waiting_cost_nothing(run, fallback_seconds=10).passed
        assert not less_idle_than(run, queue_run).passed
        assert not less_idle_than(queue_run, run).passed


def test_the_next_after_a_failed_task_is_woken(failed: Incident) -> None:
    check = woken(failed)
    assert (check.passed, check.evidence) == (True, "asked 1 time, in 50 ms after the broken one")


def test_a_next_one_that_had_to_ask_again_was_not_woken(
    failed: Incident,
) -> None:
    late = guarded_execution("dave-2", "dave", granted_ms=10_600, released_ms=11_000)
    fell_back = replace(failed, following=timed_out(late, 500))
    assert woken(fell_back).evidence == "asked 2 times, in 9.5 s after the broken one"
    polled = guarded_execution("dave-2", "dave", granted_ms=1_150, released_ms=2_000)
    for incident in (fell_back, replace(failed, following=polled)):
        assert not woken(incident).passed


def test_a_next_one_that_came_later_or_never_was_not_woken(failed: Incident) -> None:
    late = guarded_execution("dave-2", "dave", asked_ms=1_105, granted_ms=1_150, released_ms=2_000)
    for following in (late, replace(late, calls=())):
        assert not woken(replace(failed, following=following)).passed


# The demo's task loses updates when two run at once; that is what makes it worth guarding.

TABLE = "accounts"


@pytest.fixture
def accounts(dynamodb: "DynamoDBClient") -> "DynamoDBClient":
    dynamodb.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "account_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "account_id", "AttributeType": "S"}],
    )
    dynamodb.put_item(TableName=TABLE, Item=row("1000", "opening"))
    return dynamodb


def row(balance: str, last_change: str) -> dict[str, Any]:
    return {
        "account_id": {"S": "alice"},
        "balance": {"N": balance},
        "last_change": {"S": last_change},
    }


def stored(dynamodb: "DynamoDBClient") -> dict[str, Any]:
    key = {"account_id": {"S": "alice"}}
    return dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]


def event(charge_id: str, amount: int, **more: object) -> dict[str, Any]:
    return {
        "charge_id": charge_id,
        "account_id": "alice",
        "amount": amount,
        "work_seconds": 0,
    } | more


def test_a_charge_says_what_it_read_and_wrote(accounts: "DynamoDBClient") -> None:
    answer = charge(event("a-1", 30, fencing_token=1_700_000_000_000_001), accounts, TABLE)
    times = [answer.pop(name) for name in ("started_at_ms", "read_at_ms", "written_at_ms")]
    assert times == sorted(times)
    assert answer == {
        "charge_id": "a-1",
        "account_id": "alice",
        "amount": 30,
        "fencing_token": 1_700_000_000_000_001,
        "balance_read": 1000,
        "change_read": "opening",
        "balance_written": 970,
    }
    assert stored(accounts) == row("970", "a-1")


def test_a_charge_in_the_middle_of_another_is_lost(
    accounts: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    def another_charge_meanwhile(_seconds: float) -> None:
        monkeypatch.setattr(time, "sleep", lambda _seconds: None)
        charge(event("a-2", 50), accounts, TABLE)

    monkeypatch.setattr(time, "sleep", another_charge_meanwhile)
    charge(event("a-1", 30), accounts, TABLE)
    assert stored(accounts) == row("970", "a-1")


def test_charges_one_after_the_other_are_both_kept(accounts: "DynamoDBClient") -> None:
    charge(event("a-1", 30), accounts, TABLE)
    charge(event("a-2", 50), accounts, TABLE)
    assert stored(accounts) == row("920", "a-2")


def test_a_declined_charge_leaves_the_balance(accounts: "DynamoDBClient") -> None:
    with pytest.raises(CardDeclined):
        charge(event("a-1", 30, fail=True), accounts, TABLE)
    assert stored(accounts) == row("1000", "opening")


# Lost updates are found by who had read whose change, not by clocks.


def test_an_overwritten_update_is_named(unguarded_run: Run) -> None:
    (account,) = unguarded_run.accounts
    assert statement(unguarded_run, account) == Statement(
        account=account, changes=2, expected=970, lost=("a-1",), adds_up=True
    )


def test_taking_turns_loses_nothing(polling_run: Run) -> None:
    assert [
        (s.expected, s.account.closing, s.lost, s.adds_up) for s in statements(polling_run)
    ] == [
        (940, 940, (), True),
        (940, 940, (), True),
    ]


def test_a_balance_that_no_recorded_change_explains_does_not_add_up(polling_run: Run) -> None:
    alice = replace(polling_run.accounts[0], closing=123)
    assert not statement(polling_run, alice).adds_up


def test_a_last_change_by_someone_unknown_loses_everything(polling_run: Run) -> None:
    alice = replace(polling_run.accounts[0], last_change="a-stranger")
    found = statement(polling_run, alice)
    assert found.lost == ("alice-1", "alice-2", "alice-3")
    assert not found.adds_up
