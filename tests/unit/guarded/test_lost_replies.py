"""The transaction happened and its reply got lost: the same call again tells so, and that is all.

The embedded DynamoDB keeps request tokens for ten minutes, as AWS documents it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.errors import InvalidRequest, LockLost, LockStoreUnavailable, TransactionRefused
from fairlock.guarded import guarded_writes
from fairlock.guarded.guarded_writes import GuardedWrites
from tests.support import FakeClock
from tests.support.faulty_table import FaultyTable, fault, lost_reply
from tests.unit.guarded.conftest import Bench, deposit, open_account

QUEUED = pytest.mark.parametrize("queued", [False, True])
MINUTE = 60


def losing(bench: Bench, *calls: int) -> FaultyTable:
    return FaultyTable(bench.inner, fault(lost_reply(), calls, when="after"))


def losing_all(bench: Bench, *, queued: bool) -> FaultyTable:
    """Loses the reply to the transaction; to a waiter it is the second one."""
    return losing(bench, 2 if queued else 1)


def unknown(
    writes: GuardedWrites, items: list[Any], *, release: bool = False, token: str | None = "one"
) -> None:
    with pytest.raises(LockStoreUnavailable):
        writes.transact_write(items, release=release, token=token)


def test_a_repeat_of_an_answered_write_is_answered_without_a_request(bench: Bench) -> None:
    faulty = losing(bench, 99)
    writes = bench.through(faulty).writes(bench.granted("anna"))
    for _ in range(3):
        writes.transact_write([deposit("x")], token="one")
    assert (bench.balance("x"), faulty.writes) == (1, 1)


def test_the_same_writes_under_another_token_are_another_write(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    writes.transact_write([deposit("x")], token="two")
    writes.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 2


def test_without_a_token_a_repeat_is_a_new_write_and_the_error_says_so(bench: Bench) -> None:
    """The negative control."""
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    with pytest.raises(LockStoreUnavailable, match=r"is a new write: read the items.*token="):
        writes.transact_write([deposit("x")])
    writes.transact_write([deposit("x")])
    assert bench.balance("x") == 2


def test_the_error_of_a_write_with_a_token_says_that_it_can_be_repeated(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    with pytest.raises(LockStoreUnavailable, match=r"repeat the call with.*the same token"):
        writes.transact_write([deposit("x")], token="one")


@pytest.mark.parametrize("reply_lost", [False, True])
@pytest.mark.parametrize("release", [False, True])
def test_other_contents_under_the_token_of_a_write_are_refused_and_not_written(
    bench: Bench, *, reply_lost: bool, release: bool
) -> None:
    writes = bench.through(losing(bench, *[1] * reply_lost)).writes(bench.granted("anna"))
    with suppress(LockStoreUnavailable):
        writes.transact_write([deposit("x")], token="one")
    others = [deposit("x")] if release else [deposit("y")]
    with pytest.raises(InvalidRequest, match=r"^token: must be new for each write"):
        writes.transact_write(others, token="one", release=release)
    assert (bench.balance("x"), bench.balance("y"), bench.holders()) == (1, None, ["anna"])


def test_a_process_that_was_started_again_repeats_the_write_of_its_grant(bench: Bench) -> None:
    grant = bench.granted("anna")
    unknown(bench.through(losing(bench, 1)).writes(grant), [deposit("x")])
    anew = bench.writes(grant)
    anew.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 1
    with pytest.raises(InvalidRequest, match=r"^token: must be new"):
        bench.writes(grant).transact_write([deposit("y")], token="one")
    assert bench.balance("y") is None


def test_a_token_of_another_grant_names_another_write(bench: Bench) -> None:
    bench.writes(bench.granted("anna")).transact_write([deposit("x")], token="one")
    bench.release("anna")
    bench.writes(bench.granted("ben")).transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 2


def test_a_token_of_a_refused_write_is_free_for_corrected_items(bench: Bench) -> None:
    writes = bench.writes(bench.granted("anna"))
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    with pytest.raises(TransactionRefused):
        writes.transact_write([open_account("x")], token="one")
    writes.transact_write([deposit("x")], token="one")
    assert bench.balance("x") == 1


@pytest.mark.parametrize("token", ["", "x" * 257, 7, b"one"])
def test_a_token_that_is_no_text_is_refused_by_name(bench: Bench, token: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidRequest, match=r"^token: must be text"):
        bench.writes(bench.granted("anna")).transact_write([deposit("x")], token=token)
    assert bench.balance("x") is None


class Forgetful(FaultyTable):
    """DynamoDB as it is ten minutes after each transaction: it remembers no request token."""

    def transact_write_items(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        arguments["ClientRequestToken"] = str(uuid.uuid4())
        return self.inner.transact_write_items(**arguments)


@pytest.mark.parametrize(("known", "balance"), [(2, 3), (0, 4)], ids=["protected", "control"])
def test_a_committed_write_is_done_once_however_late_its_repeat_comes(
    bench: Bench, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, known: int, balance: int
) -> None:
    monkeypatch.setattr(guarded_writes, "_MOST_COMMITTED", known)
    writes = bench.through(Forgetful(bench.inner)).writes(bench.granted("anna", lease_ms=3_600_000))
    for token in ("one", "two", "three"):
        writes.transact_write([deposit("x")], token=token)
        clock.advance(11 * MINUTE)
    writes.transact_write([deposit("x")], token="two")
    assert bench.balance("x") == balance


def test_a_token_of_a_committed_write_stays_taken(bench: Bench, clock: FakeClock) -> None:
    writes = bench.through(Forgetful(bench.inner)).writes(bench.granted("anna", lease_ms=3_600_000))
    writes.transact_write([deposit("x")], token="one")
    clock.advance(11 * MINUTE)
    with pytest.raises(InvalidRequest, match=r"^token: must be new for each write"):
        writes.transact_write([deposit("y")], token="one")
    assert bench.balance("y") is None


def test_only_so_many_tokens_are_kept_besides_those_of_unknown_outcome(
    bench: Bench, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded_writes, "_MOST_COMMITTED", 20)
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")], token="lost")
    for number in range(50):
        writes.transact_write([deposit("x")], token=str(number))
        clock.advance(MINUTE)
    kept = {*writes._named, *writes._committed}  # noqa: SLF001 - seen nowhere else
    assert kept == {"lost", *map(str, range(20, 50))}


def test_a_repeat_is_told_of_its_commit_although_the_lock_is_gone_since(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1)).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    bench.release("anna")
    bench.granted("ben")
    writes.transact_write([deposit("x")], token="one")
    with pytest.raises(LockLost):
        writes.transact_write([deposit("x")], token="two")
    assert bench.balance("x") == 1


def test_a_hand_off_without_an_answer_carries_the_items_once(bench: Bench) -> None:
    """Two waiters are due: neither a further hand-off nor the repeat writes the items again."""
    writes = bench.through(losing(bench, 2)).writes(bench.granted("anna", limit=1))
    for name in ("ben", "carl"):
        bench.waits(name, limit=2)
    unknown(writes, [deposit("x")], release=True)
    writes.transact_write([deposit("x")], token="one", release=True)
    assert bench.balance("x") == 1
    assert "anna" not in bench.holders()


@QUEUED
def test_it_is_told_so_also_when_the_lock_has_changed_hands_again(
    bench: Bench, *, queued: bool
) -> None:
    writes = bench.through(losing_all(bench, queued=queued)).writes(bench.granted("anna"))
    if queued:
        bench.waits("ben")
    unknown(writes, [deposit("x")], release=True)
    bench.granted("ben")
    bench.release("ben")
    bench.granted("carl")
    writes.transact_write([deposit("x")], token="one", release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["carl"])


@QUEUED
def test_a_release_without_memory_calls_its_own_commit_a_lost_lock(
    bench: Bench, *, queued: bool
) -> None:
    """The negative control."""
    grant = bench.granted("anna")
    if queued:
        bench.waits("ben")
    failing = bench.through(losing_all(bench, queued=queued))
    unknown(failing.writes(grant), [deposit("x")], release=True)
    with pytest.raises(LockLost):
        bench.writes(grant).transact_write([deposit("x")], token="one", release=True)


def test_a_request_that_never_arrived_and_a_queue_that_moved_since(bench: Bench) -> None:
    faulty = FaultyTable(bench.inner, fault(lost_reply(), 1))
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")], release=True)
    bench.waits("ben")  # the transaction of before cannot happen any more; its successor does
    writes.transact_write([deposit("x")], token="one", release=True)
    assert (bench.balance("x"), bench.holders()) == (1, ["ben"])


def test_a_request_that_never_arrived_and_a_lock_that_got_lost_since(bench: Bench) -> None:
    faulty = FaultyTable(bench.inner, fault(lost_reply(), 1))
    writes = bench.through(faulty).writes(bench.granted("anna", lease_ms=1_000))
    unknown(writes, [deposit("x")], release=True)
    bench.clock.advance(10)
    bench.granted("ben")
    with pytest.raises(LockLost):
        writes.transact_write([deposit("x")], token="one", release=True)
    assert bench.balance("x") is None


def test_several_replies_in_a_row_may_get_lost(bench: Bench) -> None:
    writes = bench.through(losing(bench, 1, 2, 3)).writes(bench.granted("anna"))
    for _ in range(3):
        unknown(writes, [deposit("x")], release=True)
    writes.transact_write([deposit("x")], token="one", release=True)
    assert (bench.balance("x"), bench.holders()) == (1, [])


@pytest.mark.parametrize("late", ["wall", "monotonic"])
def test_after_nine_minutes_by_either_clock_no_one_can_tell_and_nothing_is_sent(
    bench: Bench, clock: FakeClock, late: str
) -> None:
    faulty = losing(bench, 1)
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    if late == "wall":
        clock.skew_ms += 10 * MINUTE * 1000
    else:
        clock.advance(10 * MINUTE)
        clock.skew_ms -= 10 * MINUTE * 1000
    for _ in range(2):
        with pytest.raises(LockStoreUnavailable, match="read the items to find out"):
            writes.transact_write([deposit("x")], token="one")
    assert (faulty.writes, bench.balance("x")) == (1, 1)


def test_the_nine_minutes_are_counted_from_the_first_time_it_was_sent(
    bench: Bench, clock: FakeClock
) -> None:
    faulty = losing(bench, 1, 2)
    writes = bench.through(faulty).writes(bench.granted("anna"))
    unknown(writes, [deposit("x")])
    clock.advance(8 * MINUTE)
    unknown(writes, [deposit("x")])
    clock.advance(2 * MINUTE)
    unknown(writes, [deposit("x")])
    assert (faulty.writes, bench.balance("x")) == (2, 1)


# A first sending that has no answer lands late: after a repeat of it was refused.


TOKENS = pytest.mark.parametrize("token", [None, "one"])


class SlowNetwork(FaultyTable):
    """Keeps a copy of each transaction; botocore sends it again, or not, and has that answer."""

    def __init__(self, inner: object, *, repeats: bool = True) -> None:
        super().__init__(inner)
        self.repeats = repeats
        self.copies: list[dict[str, Any]] = []

    def transact_write_items(self, **arguments: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        self.copies.append(arguments)
        try:
            return self.inner.transact_write_items(**arguments)
        except ClientError as error:
            error.response["ResponseMetadata"]["RetryAttempts"] = int(self.repeats)
            raise

    def first_lands(self) -> None:
        with suppress(ClientError):
            self.inner.transact_write_items(**self.copies[0])


def close_account(bench: Bench, account: str) -> None:
    bench.inner.delete_item(TableName="ledger", Key={"account": {"S": account}})


@TOKENS
@pytest.mark.parametrize("release", [False, True])
def test_after_a_refused_repeat_of_botocore_the_error_does_not_say_nothing_was_written(
    bench: Bench, token: str | None, *, release: bool
) -> None:
    network = SlowNetwork(bench.inner)
    writes = bench.through(network).writes(bench.granted("anna"))
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    with pytest.raises(LockStoreUnavailable, match="may be written yet") as caught:
        writes.transact_write([open_account("x", 7)], token=token, release=release)
    assert "nothing was written" not in str(caught.value)
    close_account(bench, "x")
    network.first_lands()
    assert bench.balance("x") == 7


@TOKENS
def test_a_refusal_of_the_only_sending_says_that_nothing_was_written(
    bench: Bench, token: str | None
) -> None:
    """The control: then no copy is under way."""
    writes = bench.through(SlowNetwork(bench.inner, repeats=False)).writes(bench.granted("anna"))
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    with pytest.raises(TransactionRefused, match="nothing was written"):
        writes.transact_write([open_account("x", 7)], token=token)


@pytest.mark.parametrize("release", [False, True])
def test_a_late_copy_and_a_repeat_with_its_token_are_one_write(
    bench: Bench, *, release: bool
) -> None:
    network = SlowNetwork(bench.inner)
    writes = bench.through(network).writes(bench.granted("anna"))
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    items = [open_account("x", 7), deposit("sum")]
    with pytest.raises(LockStoreUnavailable):
        writes.transact_write(items, token="one", release=release)
    close_account(bench, "x")
    network.first_lands()
    writes.transact_write(items, token="one", release=release)
    assert (bench.balance("x"), bench.balance("sum")) == (7, 1)


@TOKENS
def test_a_lock_that_is_gone_is_a_certain_answer_for_no_copy_lands_after_it(
    bench: Bench, token: str | None
) -> None:
    network = SlowNetwork(bench.inner)
    writes = bench.through(network).writes(bench.granted("anna"))
    bench.release("anna")
    with pytest.raises(LockLost, match="nothing was written"):
        writes.transact_write([deposit("x")], token=token)
    bench.granted("ben")
    network.first_lands()
    assert bench.balance("x") is None


def test_a_release_that_landed_late_is_a_success_and_no_lost_lock(bench: Bench) -> None:
    """The lock has another holder when the call is repeated."""
    network = SlowNetwork(bench.inner)
    writes = bench.through(network).writes(bench.granted("anna"))
    bench.inner.transact_write_items(TransactItems=[open_account("x")])
    items = [open_account("x", 7), deposit("sum")]
    with pytest.raises(LockStoreUnavailable):
        writes.transact_write(items, token="one", release=True)
    close_account(bench, "x")
    network.first_lands()
    bench.granted("ben")
    writes.transact_write(items, token="one", release=True)
    assert (bench.balance("sum"), bench.holders()) == (1, ["ben"])
