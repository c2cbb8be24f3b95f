"""describe, list, release and force_release of a client: what they show, send and raise."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlock import (
    DescribedHolder,
    HolderChanged,
    InvalidRequest,
    LockDescription,
    LockLost,
    LockStoreMisconfigured,
    LockStoreUnavailable,
    LockWaitTimeout,
)
from fairlock.errors import ClientUnusable
from fairlock.protocol.outcomes import Queued
from tests.support import acquire, owner, store_over
from tests.support.faults import lost_reply, refusal
from tests.unit.client.conftest import MakeClient
from tests.unit.client.support.doubles import EventfulClock, Table

WHY = "stuck since 3 a.m."


def described(found: LockDescription | None) -> LockDescription:
    assert found is not None
    return found


def test_what_a_client_describes_and_lists_is_the_lock_that_another_holds(
    make_client: MakeClient, table: Table
) -> None:
    lock = make_client("anna").acquire("orders/7", data={"job": 7})
    operator = make_client("olga")
    table.log.clear()
    found = described(operator.describe("orders/7"))
    assert table.log == ["query", "get_item"]
    [holder] = found.holders
    assert (holder.owner_name, holder.data) == ("anna", {"job": 7})
    assert holder.fencing_token == lock.fencing_token
    assert lock.owner_id not in repr(found)
    assert list(operator.list()) == list(operator.list("orders/")) == [found]
    assert list(operator.list("other")) == []
    assert operator.describe("orders/8") is None


def test_a_forced_release_ends_what_the_holder_relies_on(
    make_client: MakeClient, table: Table
) -> None:
    lock = make_client("anna").acquire("orders/7")
    operator = make_client("olga")
    [holder] = described(operator.describe("orders/7")).holders
    operator.force_release("orders/7", holder=holder, reason=WHY)
    lock.check()  # It has not asked yet: no lease can do better.
    with pytest.raises(LockLost):
        lock.transact_write([{"Put": {"TableName": "any", "Item": {"pk": {"S": "a"}}}}])
    assert lock.lost.is_set()
    assert lock.release() is False
    assert table.state("orders/7").holders == ()


def test_the_heartbeat_of_the_former_holder_raises_lock_lost(make_client: MakeClient) -> None:
    told: list[str] = []
    lock = make_client("anna").acquire("orders/7", on_lost=lambda _lock, why: told.append(why))
    make_client("olga").force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY)
    with pytest.raises(LockLost, match="another owner has it, or it was freed by force"):
        lock.heartbeat()
    assert lock.lost.is_set()


def test_a_release_after_a_release_by_force_tells_of_no_owner_whom_there_was_not(
    make_client: MakeClient,
) -> None:
    lock = make_client("anna").acquire("orders/7")
    make_client("olga").force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY)
    assert lock.release() is False
    with pytest.raises(LockLost, match="another owner had it, or it was freed by force, before"):
        lock.check()


def test_who_and_why_are_logged_and_stored(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    lock = make_client("anna").acquire("orders/7")
    with caplog.at_level(logging.WARNING, "fairlock"):
        make_client("olga").force_release(
            "orders/7", fencing_token=lock.fencing_token, reason=WHY, requested_by="arn:olga"
        )
    [told] = caplog.messages
    assert told == (
        f"lock 'orders/7': released by force by arn:olga: {WHY}; it was held by anna, "
        f"fencing token {lock.fencing_token}"
    )
    last = described(make_client("olga").describe("orders/7")).last_forced_release
    assert last is not None
    assert (last.requested_by, last.reason) == ("arn:olga", WHY)


def test_the_holder_that_a_waiter_was_told_of_can_be_named(make_client: MakeClient) -> None:
    make_client("anna").acquire("orders/7", data={"order": 7})
    operator = make_client("olga")
    with pytest.raises(LockWaitTimeout) as caught:
        operator.acquire("orders/7", max_wait=0)
    assert caught.value.holders == described(operator.describe("orders/7")).holders
    assert caught.value.holders[0].data == {"order": 7}
    operator.force_release("orders/7", holder=caught.value.holders[0], reason=WHY)
    assert operator.try_acquire("orders/7") is not None


def test_a_holder_that_changed_is_a_typed_error_and_nothing_is_written(
    make_client: MakeClient, table: Table
) -> None:
    first = make_client("anna").acquire("orders/7")
    first.release()
    make_client("ben").acquire("orders/7")
    before = dict(table.memory.items)
    with pytest.raises(HolderChanged, match="describe the lock again") as caught:
        make_client("olga").force_release("orders/7", fencing_token=first.fencing_token, reason=WHY)
    assert (caught.value.lock_name, caught.value.fencing_token) == ("orders/7", first.fencing_token)
    assert table.memory.items == before


def test_a_lost_reply_is_repeated_and_answered(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna").acquire("orders/7")
    replies = iter([True, True, False])

    def lose(name: str, _arguments: Any) -> None:  # noqa: ANN401 - a request
        table.loses_replies = next(replies, False) and name == "update_item"

    table.before = lose
    make_client("olga").force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY)
    assert table.state("orders/7").holders == ()
    assert clock.waits, "it was repeated after a pause"


def test_an_owner_id_is_enough_to_release_with_one_request_that_may_be_repeated(
    make_client: MakeClient, table: Table
) -> None:
    lock = make_client("anna").acquire("orders/7")
    other = make_client("ben")
    table.log.clear()
    assert other.release("orders/7", lock.owner_id) is True
    assert table.log == ["update_item"]
    assert other.release("orders/7", lock.owner_id) is True, "a repeat"
    with pytest.raises(LockLost):
        lock.heartbeat()
    assert other.release("orders/7", owner("nobody")) is False
    make_client("carl").acquire("orders/7").release()
    assert other.release("orders/7", lock.owner_id) is False, "another has released since"


def test_a_release_by_owner_id_hands_over_to_who_waits(
    make_client: MakeClient, table: Table, clock: EventfulClock
) -> None:
    lock = make_client("anna").acquire("orders/7")
    queued = store_over(table, clock).acquire(acquire("ben", lock_name="orders/7", waits=True))
    assert isinstance(queued, Queued)
    assert make_client("olga").release("orders/7", lock.owner_id) is True
    assert [holder.owner_name for holder in table.state("orders/7").holders] == ["ben"]


def test_a_release_by_owner_id_whose_reply_is_lost_is_repeated_and_answered(
    make_client: MakeClient, table: Table
) -> None:
    lock = make_client("anna").acquire("orders/7")
    replies = iter([True, True, True, False])
    table.before = lambda _name, _arguments: setattr(table, "loses_replies", next(replies, False))
    assert make_client("olga").release("orders/7", lock.owner_id) is True
    assert table.log.count("update_item") > 2
    assert table.state("orders/7").holders == ()


@pytest.mark.parametrize(("field", "wrong"), [("name", ""), ("owner_id", "short")])
def test_a_bad_argument_of_release_is_refused_and_nothing_is_sent(
    make_client: MakeClient, table: Table, field: str, wrong: str
) -> None:
    arguments = {"name": "orders/7", "owner_id": owner("anna"), field: wrong}
    with pytest.raises(InvalidRequest) as caught:
        make_client("olga").release(**arguments)
    assert caught.value.field == field
    assert table.log == []


def test_an_outage_is_no_answer(make_client: MakeClient, table: Table) -> None:
    lock = make_client("anna").acquire("orders/7")
    operator = make_client("olga")
    table.outage = lost_reply()
    for call in (
        lambda: operator.force_release("orders/7", fencing_token=lock.fencing_token, reason=WHY),
        lambda: operator.release("orders/7", lock.owner_id),
        lambda: operator.describe("orders/7"),
        lambda: list(operator.list()),
    ):
        with pytest.raises(LockStoreUnavailable):
            call()
    table.outage = refusal("AccessDeniedException")
    with pytest.raises(LockStoreMisconfigured, match="no permission"):
        list(operator.list())
    table.outage = None
    lock.heartbeat()


def test_a_lock_that_someone_has_changed_is_logged_and_left_out(
    make_client: MakeClient, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    client = make_client("anna")
    client.acquire("a")
    client.acquire("b")
    table.memory.items["LOCK#a", "STATE"]["held"] = {"S": "nonsense"}
    assert [lock.name for lock in client.list()] == ["b"]
    assert "LOCK#a" in caplog.text


HOLDER = DescribedHolder(
    owner_name="anna",
    acquired_at=datetime(2030, 1, 1, tzinfo=UTC),
    expires_at=datetime(2030, 1, 2, tzinfo=UTC),
    fencing_token=7,
    lease=60.0,
    limit=1,
    data={"order": 7},
    execution_arn=None,
)
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no name": ("name", {"name": ""}),
    "an owner_id as token": ("fencing_token", {"fencing_token": "0123456789abcdef"}),
    "no holder": ("holder", {"fencing_token": None}),
    "a holder and a token": ("holder", {"holder": HOLDER}),
    "a number as holder": ("holder", {"holder": 7, "fencing_token": None}),
    "an owner_id as holder": ("holder", {"holder": "0123456789abcdef", "fencing_token": None}),
    "a token of no one": ("fencing_token", {"fencing_token": 0}),
    "true as token": ("fencing_token", {"fencing_token": True}),
    "no reason": ("reason", {"reason": ""}),
    "a reason of two lines": ("reason", {"reason": "a\nb"}),
    "a long reason": ("reason", {"reason": "x" * 513}),
    "nobody": ("requested_by", {"requested_by": ""}),
    "a long name": ("requested_by", {"requested_by": "x" * 257}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_is_refused_by_name_and_nothing_is_sent(
    case: str, make_client: MakeClient, table: Table
) -> None:
    field, changed = BAD[case]
    arguments: dict[str, Any] = {"name": "orders/7", "fencing_token": 7, "reason": WHY, **changed}
    with pytest.raises(InvalidRequest) as caught:
        make_client("olga").force_release(**arguments)
    assert caught.value.field == field
    assert "0123456789abcdef" not in str(caught.value)
    assert table.log == []


@pytest.mark.parametrize("prefix", ["a\n", "x" * 513])
def test_a_bad_prefix_is_refused_before_the_iteration_begins(
    make_client: MakeClient, prefix: str
) -> None:
    with pytest.raises(InvalidRequest, match="prefix"):
        make_client("olga").list(prefix)


def test_a_name_too_long_for_the_mark_is_cut_at_a_letter(
    make_client: MakeClient, table: Table
) -> None:
    lock = make_client("anna").acquire("orders/7")
    make_client("\N{LATIN SMALL LETTER E WITH ACUTE}" * 400).force_release(
        "orders/7", fencing_token=lock.fencing_token, reason=WHY
    )
    last = table.state("orders/7").last_forced_release
    assert last is not None
    assert last.requested_by == "\N{LATIN SMALL LETTER E WITH ACUTE}" * 128


def test_a_client_that_is_closed_does_none_of_it(make_client: MakeClient) -> None:
    client = make_client("anna")
    client.close()
    for call in (
        lambda: client.describe("a"),
        client.list,
        lambda: client.force_release("a", fencing_token=7, reason=WHY),
        lambda: client.adopt("a", "0123456789abcdef"),
        lambda: client.release("a", "0123456789abcdef"),
    ):
        with pytest.raises(ClientUnusable):
            call()


def test_a_paused_lock_says_by_whom_and_why_to_those_who_ask_and_wait(
    make_client: MakeClient, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    operator, client = make_client("olga"), make_client("anna")
    operator.pause("orders/7", reason="freeze until Monday")
    for max_wait in (0, 0.2):
        with pytest.raises(LockWaitTimeout) as timeout:
            client.acquire("orders/7", max_wait=max_wait)
        assert "paused by olga since" in str(timeout.value)
        assert "(freeze until Monday)" in str(timeout.value)
        assert timeout.value.ceiling is not None
        assert (timeout.value.ceiling.limit, timeout.value.holders) == (0, ())
    assert client.try_acquire("orders/7") is None
    found = described(client.describe("orders/7"))
    assert found.is_paused
    assert list(client.list()) == [found]
    assert "lock 'orders/7': paused by olga: freeze until Monday" in caplog.messages
    operator.resume("orders/7", requested_by="paul")
    assert "lock 'orders/7': resumed by paul: resumed" in caplog.messages
    assert client.acquire("orders/7", max_wait=0).fencing_token > 0
    assert table.state("orders/7").ceiling is None


def test_a_limit_holds_whatever_callers_name_until_it_is_lifted(make_client: MakeClient) -> None:
    client = make_client("anna")
    client.set_limit("vendor", 1, reason=WHY)
    first = client.acquire("vendor", limit=3, max_wait=0)
    assert client.try_acquire("vendor", limit=3) is None
    client.set_limit("vendor", 2, reason=WHY)
    assert client.try_acquire("vendor", limit=3) is not None
    client.resume("vendor")
    assert client.try_acquire("vendor", limit=3) is not None
    assert first.release() is True


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"limit": 0}, r"^limit: must be at least 1; to let no one hold the lock, use `pause`"),
        ({"limit": 101}, r"^limit: must be a whole number from 1 to 100"),
        ({"limit": True}, r"^limit: must be a whole number"),
        ({"reason": ""}, r"^reason: must tell why"),
        ({"requested_by": "a\nb"}, r"^requested_by: must tell who"),
        ({"name": ""}, r"^name: "),
    ],
)
def test_a_wrong_limit_is_refused_and_nothing_is_sent(
    make_client: MakeClient, table: Table, arguments: dict[str, Any], rule: str
) -> None:
    fields: dict[str, Any] = {"name": "vendor", "limit": 3, "reason": WHY, **arguments}
    client = make_client("olga")
    table.log.clear()
    with pytest.raises(InvalidRequest, match=rule):
        client.set_limit(fields.pop("name"), fields.pop("limit"), **fields)
    assert table.log == []
