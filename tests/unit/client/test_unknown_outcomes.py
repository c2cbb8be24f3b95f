"""An error is never a grant and never a refusal; what it may have left behind is taken back."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock import (
    LockItemMalformed,
    LockStoreMisconfigured,
    LockStoreUnavailable,
)
from fairlock.client import acquisition
from fairlock.errors import FairlockError
from fairlock.protocol.model import AcquireRequest, Grant, ReleaseRequest
from fairlock.store import acquire
from fairlock.store.context import LockContext
from tests.support import START_MS
from tests.support.faulty_table import client_error, lost_reply
from tests.unit.client.conftest import MakeClient
from tests.unit.client.doubles import EventfulClock, Table


def test_a_store_that_takes_an_error_for_a_grant_would_be_noticed(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def granted_anyway(context: LockContext, request: AcquireRequest, **seen: Any) -> Any:  # noqa: ANN401 - as the real one
        try:
            return acquire.acquire(context, request, **seen)
        except FairlockError:
            return Grant(
                lock_name=request.lock_name,
                owner_id=request.owner_id,
                fencing_token=0,
                lease_ms=request.lease_ms,
                acquired_at_ms=START_MS,
                expires_at_ms=START_MS + 2 * request.lease_ms,
                since=math.inf,
                own_ms=request.lease_ms,
            )

    monkeypatch.setattr(acquisition, "acquire", granted_anyway)
    table.outage = client_error("ThrottlingException")
    assert make_client().try_acquire("a") is not None


def test_a_defect_of_the_set_up_names_the_table_and_what_to_do(
    make_client: MakeClient, table: Table
) -> None:
    denied = client_error("AccessDeniedException")
    denied.response["ResponseMetadata"]["RetryAttempts"] = 0
    table.outage = denied
    with pytest.raises(LockStoreMisconfigured, match=r"^lock table 'locks' in .* no permission"):
        make_client().acquire("a", max_wait=10)


def test_a_grant_whose_reply_was_lost_is_given_back_if_no_one_waits_for_it(
    make_client: MakeClient, table: Table
) -> None:
    """`try_acquire` tries once; what it may have got must not block others for a lease."""

    def fail_the_first_reply(name: str, _arguments: object) -> None:
        table.loses_replies = name == "update_item" and table.log == []

    table.before = fail_the_first_reply
    with pytest.raises(LockStoreUnavailable):
        make_client().try_acquire("a")
    assert table.state("a").held == 0


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_a_try_that_lands_after_its_caller_has_given_it_up_is_refused(
    make_client: MakeClient, table: Table, monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    """Else it would be granted to no one, until its lease ends."""
    if not protected:
        without_mark = partial(replace, waits=False)
        monkeypatch.setattr(
            acquisition, "ReleaseRequest", lambda **named: without_mark(ReleaseRequest(**named))
        )
    late: list[dict[str, Any]] = []

    def hold_back(_name: str, arguments: dict[str, Any]) -> None:
        table.before = None
        late.append(arguments)
        raise lost_reply()

    table.before = hold_back
    with pytest.raises(LockStoreUnavailable):
        make_client().try_acquire("a")
    with suppress(ClientError):
        table.update_item(**late[0])
    assert table.state("a").held == (0 if protected else 1)


def test_a_grant_whose_reply_was_lost_is_found_by_asking_again(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    table.loses_replies = True
    began = clock.now_ms

    def replies_come() -> None:
        table.loses_replies = False

    clock.at(3, replies_come)
    lock = make_client().acquire("a", max_wait=60, lease=30)
    assert clock.now_ms - began < 6_000
    assert lock.fencing_token == table.state("a").fencing_token
    # Written at the first try, so the lease is counted from there.
    assert lock.remaining == pytest.approx(30 * 0.98)


def test_an_outage_is_waited_out(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    table.outage = lost_reply()

    def end() -> None:
        table.outage = None

    clock.at(20, end)
    make_client().acquire("a", max_wait=60).check()


def test_a_waiter_that_cannot_leave_says_that_the_outcome_is_unknown(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna", lease=600).acquire("a")

    def begin() -> None:
        table.outage = lost_reply()

    clock.at(20, begin)
    with pytest.raises(LockStoreUnavailable):
        make_client("ben").acquire("a", max_wait=30)
    table.outage = None
    # Its place ends by itself, soon after its wait, so that nothing is handed to it any more.
    assert table.waiters("a") == ["ben"]
    clock.advance(15)
    lock.release()
    make_client("carl").acquire("a", max_wait=0).check()


def test_a_release_whose_reply_was_lost_is_repeated_and_succeeds(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client().acquire("a")
    table.loses_replies = True
    clock.at(1, lambda: setattr(table, "loses_replies", False))
    assert lock.release() is True
    assert not lock.lost.is_set()


def test_a_stale_release_changes_nothing(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    stale = make_client("anna", lease=10).acquire("a")
    clock.advance(30)
    holder = make_client("ben").acquire("a")
    before = table.state("a")
    assert stale.release() is False
    assert table.state("a") == before
    holder.check()


def test_a_release_without_its_condition_would_free_the_next_holders_lock(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    stale = make_client("anna", lease=10).acquire("a")
    clock.advance(30)
    make_client("ben").acquire("a")

    def without_condition(_name: str, arguments: dict[str, Any]) -> None:
        table.before = None
        arguments["ConditionExpression"] = "attribute_exists(#held) AND attribute_exists(#held)"
        arguments["ExpressionAttributeNames"].pop("#contended")
        for unused in (":seen_grant", ":late_limit"):
            arguments["ExpressionAttributeValues"].pop(unused)

    table.before = without_condition
    with suppress(LockItemMalformed):  # The answer has no holder of this name.
        stale.release()
    assert table.state("a").held == 0
    assert make_client("carl").try_acquire("a") is not None


def test_a_handle_returns_the_token_it_was_granted(
    make_client: MakeClient, clock: EventfulClock, table: Table
) -> None:
    stale = make_client("anna", lease=10).acquire("a")
    granted = stale.fencing_token
    clock.advance(30)
    newer = make_client("ben").acquire("a")
    assert (stale.fencing_token, newer.fencing_token > granted) == (granted, True)
    # The counter, which a handle must not read: it would arm the stale holder with the new token.
    assert table.state("a").fencing_token == newer.fencing_token != granted


def test_tokens_grow_also_after_the_item_was_deleted(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    assert tokens_over_a_deletion(make_client, table, clock) == "grow"


def test_a_counter_that_begins_again_would_let_an_old_writer_in(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    def seed_of_zero(_name: str, arguments: dict[str, Any]) -> None:
        values = arguments["ExpressionAttributeValues"]
        if ":seed" in values:
            values[":seed"] = {"N": "0"}

    table.before = seed_of_zero
    assert tokens_over_a_deletion(make_client, table, clock) == "shrink"


def tokens_over_a_deletion(make_client: MakeClient, table: Table, clock: EventfulClock) -> str:
    locks = make_client()
    tokens = []
    for _ in range(50):
        lock = locks.acquire("a")
        tokens.append(lock.fencing_token)
        lock.release()
    table.memory.items.clear()  # As TTL does, two days after the last use.
    clock.advance(50 * 3600)
    newest = locks.acquire("a").fencing_token
    return "grow" if newest > max(tokens) else "shrink"


@dataclass
class RepeatingRelease:
    """A client whose next write is done, is answered to no one, and is repeated by botocore."""

    inner: Any
    meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        return getattr(self.inner, name)

    def update_item(self, **request: Any) -> Any:  # noqa: ANN401 - as boto3 answers
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is None:
            return self.inner.update_item(**request)
        self.inner.update_item(**request)
        meanwhile()
        try:
            return self.inner.update_item(**request)
        except ClientError as error:
            error.response["ResponseMetadata"] = {"RetryAttempts": 1}  # type: ignore[typeddict-item]  # as far as is read
            raise


def test_a_release_that_botocore_repeats_after_others_came_and_went_is_no_loss(
    make_client: MakeClient, table: Table
) -> None:
    client = RepeatingRelease(table)
    others = make_client("ben")
    lock = make_client(client=client).acquire("a")
    client.meanwhile = lambda: others.acquire("a", max_wait=0).release()
    assert lock.release() is True
    assert not lock.lost.is_set()


def test_a_waiter_that_is_interrupted_while_it_gives_up_leaves_the_queue(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    make_client("anna").acquire("a")
    began = clock.monotonic()

    def interrupt(name: str, _: dict[str, Any]) -> None:
        if name == "transact_write_items" and clock.monotonic() >= began + 5:
            table.before = None
            raise KeyboardInterrupt

    table.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        make_client("ben").acquire("a", max_wait=5)
    assert table.waiters("a") == []
