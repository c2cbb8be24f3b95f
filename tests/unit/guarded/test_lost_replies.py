"""The transaction happened and its reply got lost: the same call again tells so, and that is all.

The embedded DynamoDB keeps request tokens for ten minutes, as AWS documents it.
"""

from __future__ import annotations

import uuid
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.errors import InvalidRequest, LockLost, LockStoreUnavailable, TransactionRefused
from fairlock.guarded import guarded_writes
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.testing import ManualClock
from tests.support.faulty_table import FaultyTable, fault, lose, lost_reply, refusal
from tests.unit.guarded.conftest import Bench, deposit, open_account

MINUTE = 60


def losing(bench: Bench, *calls: int) -> FaultyTable:
    return FaultyTable(bench.client, lose(*calls))


def unknown(
    writes: GuardedWrites, items: list[Any], *, release: bool = False, token: str | None = "one"
) -> None:
    told = "a new write" if token is None else "the same items and the same token"
    with pytest.raises(LockStoreUnavailable, match=told):
        writes.transact_write(items, release=release, token=token)


def test_a_repeat_of_an_answered_write_is_answered_without_a_request(bench: Bench) -> None:
    faulty = losing(bench, 99)
    writes = bench.writes(bench.grant("anna"), faulty)
    for _ in range(3):
        writes.transact_write([deposit("x")], token="one")
    assert (bench.balance("x"), faulty.writes) == (1, 1)


def test_the_same_writes_under_another_token_are_another_write(bench: Bench) -> None:
    writes = bench.writes(bench.grant("anna"), lose(1))
    unknown(writes, [deposit("x")])
    writes.transact_write([deposit("x")], token="two")
    writes.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 2


def test_without_a_token_a_repeat_is_a_new_write_and_the_error_says_so(bench: Bench) -> None:
    """The negative control."""
    writes = bench.writes(bench.grant("anna"), lose(1))
    with pytest.raises(LockStoreUnavailable, match=r"is a new write: read the items.*token="):
        writes.transact_write([deposit("x")])
    writes.transact_write([deposit("x")])
    assert bench.balance("x") == 2


@pytest.mark.parametrize("reply_lost", [False, True])
@pytest.mark.parametrize("release", [False, True])
def test_other_contents_under_the_token_of_a_write_are_refused_and_not_written(
    bench: Bench, *, reply_lost: bool, release: bool
) -> None:
    writes = bench.writes(bench.grant("anna"), lose(1) if reply_lost else None)
    with suppress(LockStoreUnavailable):
        writes.transact_write([deposit("x")], token="one")
    others = [deposit("x")] if release else [deposit("y")]
    with pytest.raises(InvalidRequest, match=r"^token: must be new for each write"):
        writes.transact_write(others, token="one", release=release)
    assert (bench.balance("x"), bench.balance("y"), bench.holders()) == (1, None, ["anna"])


def test_a_process_that_was_started_again_repeats_the_write_of_its_grant(bench: Bench) -> None:
    grant = bench.grant("anna")
    unknown(bench.writes(grant, losing(bench, 1)), [deposit("x")])
    again = bench.writes(grant)
    again.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 1
    with pytest.raises(InvalidRequest, match=r"^token: must be new"):
        bench.writes(grant).transact_write([deposit("y")], token="one")
    assert bench.balance("y") is None


def test_a_token_of_another_grant_names_another_write(bench: Bench) -> None:
    bench.writes(bench.grant("anna")).transact_write([deposit("x")], token="one")
    bench.release("anna")
    bench.writes(bench.grant("ben")).transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 2


def test_a_token_of_a_refused_write_is_free_for_corrected_items(bench: Bench) -> None:
    writes = bench.writes(bench.grant("anna"))
    bench.client.transact_write_items(TransactItems=[open_account("x")])
    with pytest.raises(TransactionRefused):
        writes.transact_write([open_account("x")], token="one")
    writes.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 1


@pytest.mark.parametrize("token", ["", "x" * 257, 7, b"one"])
def test_a_token_that_is_no_text_is_refused_by_name(bench: Bench, token: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidRequest, match=r"^token: must be text"):
        bench.writes(bench.grant("anna")).transact_write([deposit("x")], token=token)
    assert bench.balance("x") is None


class Forgetful(FaultyTable):
    """DynamoDB as it is ten minutes after each transaction: it remembers no request token."""

    def transact_write_items(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        arguments["ClientRequestToken"] = str(uuid.uuid4())
        return self.inner.transact_write_items(**arguments)


def test_a_committed_write_is_done_once_however_late_its_repeat_comes(
    bench: Bench, clock: ManualClock
) -> None:
    """And no other write is done under its token."""
    writes = bench.writes(bench.grant("anna", lease_ms=3_600_000), Forgetful(bench.client))
    for token in ("one", "two", "three"):
        writes.transact_write([deposit("x")], token=token)
        clock.advance(11 * MINUTE)
    writes.transact_write([deposit("x")], token="two")
    with pytest.raises(InvalidRequest, match=r"^token: must be new for each write"):
        writes.transact_write([deposit("y")], token="two")
    assert (bench.balance("x"), bench.balance("y")) == (3, None)


def test_only_so_many_tokens_are_kept_besides_those_of_unknown_outcome(
    bench: Bench, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_writes, "_MOST_COMMITTED", 20)
    writes = bench.writes(bench.grant("anna"), lose(1))
    unknown(writes, [deposit("x")], token="lost")
    for number in range(50):
        writes.transact_write([deposit("x")], token=str(number))
        clock.advance(MINUTE)
    kept = {*writes._named, *writes._committed}  # noqa: SLF001 - seen nowhere else
    assert kept == {"lost", *map(str, range(20, 50))}


@pytest.mark.parametrize(
    ("release", "queued"), [(False, False), (True, False), (True, True)], ids=str
)
def test_a_repeat_is_told_of_its_commit_although_the_lock_has_changed_hands_since(
    bench: Bench, *, release: bool, queued: bool
) -> None:
    writes = bench.writes(bench.grant("anna"), lose(2 if queued else 1))
    if queued:
        bench.waits("ben")
    unknown(writes, [deposit("x")], release=release)
    bench.release("anna")
    for name in ("ben", "carl"):
        bench.grant(name)
        bench.release(name)
    bench.grant("dora")
    writes.transact_write([deposit("x")], token="one", release=release)
    with pytest.raises(LockLost):
        writes.transact_write([deposit("x")], token="two", release=release)
    assert (bench.balance("x"), bench.holders()) == (1, ["dora"])


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_request_that_never_arrived_is_sent_again_only_while_the_lock_is_held(
    bench: Bench, *, is_lost: bool
) -> None:
    """Behind a queue that has moved since: the transaction of before can happen no more."""
    faulty = FaultyTable(bench.client, fault(lost_reply(), 1))
    writes = bench.writes(bench.grant("anna", lease_ms=1_000), faulty)
    unknown(writes, [deposit("x")], release=True)
    if is_lost:
        bench.clock.advance(10)
        bench.grant("ben")
    else:
        bench.waits("ben")
    with pytest.raises(LockLost) if is_lost else nullcontext():
        writes.transact_write([deposit("x")], token="one", release=True)
    assert (bench.balance("x"), bench.holders()) == (None if is_lost else 1, ["ben"])


@pytest.mark.parametrize("late", ["wall", "monotonic"])
def test_after_nine_minutes_by_either_clock_no_one_can_tell_and_nothing_is_sent(
    bench: Bench, clock: ManualClock, late: str
) -> None:
    faulty = losing(bench, 1)
    writes = bench.writes(bench.grant("anna"), faulty)
    unknown(writes, [deposit("x")])
    if late == "wall":
        bench.own_clock.skew_ms += 10 * MINUTE * 1000
    else:
        clock.advance(10 * MINUTE)
        bench.own_clock.skew_ms -= 10 * MINUTE * 1000
    for _ in range(2):
        with pytest.raises(LockStoreUnavailable, match="read the items to find out"):
            writes.transact_write([deposit("x")], token="one")
    assert (faulty.writes, bench.balance("x")) == (1, 1)


def test_the_nine_minutes_are_counted_from_the_first_time_it_was_sent(
    bench: Bench, clock: ManualClock
) -> None:
    faulty = losing(bench, 1, 2)
    writes = bench.writes(bench.grant("anna"), faulty)
    unknown(writes, [deposit("x")])
    clock.advance(8 * MINUTE)
    unknown(writes, [deposit("x")])
    clock.advance(2 * MINUTE)
    unknown(writes, [deposit("x")])
    assert (faulty.writes, bench.balance("x")) == (2, 1)


# A first sending that has no answer lands late: after a repeat of it was refused.


TOKENS = pytest.mark.parametrize("token", [None, "one"])


class SlowNetwork(FaultyTable):
    """Keeps a copy of each transaction; botocore sends it again, and has that answer."""

    def __init__(self, inner: object) -> None:
        super().__init__(inner)
        self.copies: list[dict[str, Any]] = []

    def transact_write_items(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        self.copies.append(arguments)
        try:
            return self.inner.transact_write_items(**arguments)
        except ClientError as error:
            error.response["ResponseMetadata"]["RetryAttempts"] = 1
            raise

    def first_lands(self) -> None:
        with suppress(ClientError):
            self.inner.transact_write_items(**self.copies[0])


@pytest.fixture
def network(bench: Bench) -> SlowNetwork:
    """There is an account that keeps another one from being opened."""
    bench.client.transact_write_items(TransactItems=[open_account("x")])
    return SlowNetwork(bench.client)


def first_lands(bench: Bench, network: SlowNetwork) -> None:
    """The account was closed in the meantime."""
    bench.client.delete_item(TableName="ledger", Key={"account": {"S": "x"}})
    network.first_lands()


ITEMS = [open_account("x", 7), deposit("sum")]


@TOKENS
@pytest.mark.parametrize("release", [False, True])
def test_after_a_refused_repeat_of_botocore_the_error_does_not_say_nothing_was_written(
    bench: Bench, network: SlowNetwork, token: str | None, *, release: bool
) -> None:
    writes = bench.writes(bench.grant("anna"), network)
    with pytest.raises(LockStoreUnavailable, match="may be written yet") as caught:
        writes.transact_write(ITEMS, token=token, release=release)
    assert "nothing was written" not in str(caught.value)
    first_lands(bench, network)
    assert bench.balance("x") == 7


@pytest.mark.parametrize(("release", "others"), [(False, []), (True, []), (True, ["ben"])], ids=str)
def test_a_late_copy_and_a_repeat_with_its_token_are_one_write(
    bench: Bench, network: SlowNetwork, others: list[str], *, release: bool
) -> None:
    """And no lost lock, although it has another holder when the call is repeated."""
    writes = bench.writes(bench.grant("anna"), network)
    unknown(writes, ITEMS, release=release)
    first_lands(bench, network)
    for name in others:
        bench.grant(name)
    writes.transact_write(ITEMS, token="one", release=release)
    assert (bench.balance("x"), bench.balance("sum")) == (7, 1)
    assert bench.holders() == (others if release else ["anna"])


@TOKENS
def test_a_lock_that_is_gone_is_a_certain_answer_for_no_copy_lands_after_it(
    bench: Bench, token: str | None
) -> None:
    network = SlowNetwork(bench.client)
    writes = bench.writes(bench.grant("anna"), network)
    bench.release("anna")
    with pytest.raises(LockLost, match="nothing was written"):
        writes.transact_write([deposit("x")], token=token)
    bench.grant("ben")
    network.first_lands()
    assert bench.balance("x") is None


# A hand-off whose transaction is sent again: its waiter sleeps until it is told.


@pytest.mark.parametrize("is_done", [False, True])
def test_a_waiter_is_told_of_its_grant_when_the_write_is_repeated(
    bench: Bench, *, is_done: bool
) -> None:
    grant = bench.grant("anna")
    bench.waits("ben")
    when: Any = "after" if is_done else "before"
    faulty = FaultyTable(bench.client, fault(lost_reply(), 2, when=when))
    writes = bench.writes(grant, faulty)
    unknown(writes, [deposit("x")], release=True)
    assert bench.pushed == ["ben"] * is_done
    writes.transact_write([deposit("x")], release=True, token="one")
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"])
    assert bench.workflows.woken[-1] == ("ben", bench.workflows.woken[0][1])
    told = len(bench.workflows.woken)
    writes.transact_write([deposit("x")], release=True, token="one")
    assert len(bench.workflows.woken) == told


def test_a_waiter_that_has_lost_its_grant_is_not_told_by_the_repeat(bench: Bench) -> None:
    grant = bench.grant("anna")
    bench.waits("ben")
    writes = bench.writes(grant, losing(bench, 2))
    unknown(writes, [deposit("x")], release=True)
    bench.release("ben")
    told = len(bench.workflows.woken)
    writes.transact_write([deposit("x")], release=True, token="one")
    assert len(bench.workflows.woken) == told


def test_what_keeps_a_waiter_from_being_told_does_not_hide_that_the_write_is_done(
    bench: Bench,
) -> None:
    grant = bench.grant("anna")
    bench.waits("ben")
    no_permission = fault(refusal("AccessDeniedException"), of=("get_item",))
    faulty = FaultyTable(bench.client, fault(lost_reply(), 2), no_permission)
    writes = bench.writes(grant, faulty)
    unknown(writes, [deposit("x")], release=True)
    writes.transact_write([deposit("x")], release=True, token="one")
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"])
