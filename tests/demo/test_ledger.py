"""Lost updates are found by who had read whose change, not by clocks."""

from dataclasses import replace

from examples.demo.facts import Run
from examples.demo.ledger import Statement, statement, statements


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
