"""A first sending that has no answer lands late: after a repeat of it was refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.errors import LockLost, LockStoreUnavailable, TransactionRefused
from tests.support.faults import WrappedClient
from tests.unit.guarded.bench import Bench, deposit, open_account

TOKENS = pytest.mark.parametrize("token", [None, "one"])


@dataclass
class SlowNetwork(WrappedClient):
    """Keeps a copy of each transaction; botocore sends it again, or not, and has that answer."""

    repeats: bool = True
    copies: list[dict[str, Any]] = field(default_factory=list)

    def _write(self, send: Any, arguments: dict[str, Any]) -> Any:  # noqa: ANN401 - as boto3 answers
        if "ClientRequestToken" not in arguments:
            return send(**arguments)
        self.copies.append(arguments)
        try:
            return send(**arguments)
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


def test_a_release_that_landed_late_is_a_success_and_no_lost_lock(
    bench: Bench,
) -> None:
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
