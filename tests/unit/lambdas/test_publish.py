"""The handler that tells EventBridge: in batches of ten, all or an error, the same twice."""

from __future__ import annotations

import copy
import json
from itertools import product
from typing import Any

import pytest

from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.testing import ManualClock
from lambdas import publish, runtime
from tests.support import TABLE, LambdaContextStub, Operations, acquire, release, store_over
from tests.support.memory_tables import StreamedTable
from tests.support.store_bench import RUN


def published(batch: dict[str, Any]) -> Any:  # noqa: ANN401 - the handler's answer
    handler: Any = publish.handler
    return handler(batch, LambdaContextStub())


class Bus:
    """EventBridge; refuses what `refuses` says."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, str]]] = []
        self.refuses = False

    def put_events(self, *, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        self.batches.append(Entries)
        if self.refuses:
            refused = {"ErrorCode": "ThrottlingException"}
            return {"FailedEntryCount": 1, "Entries": [refused, *({} for _ in Entries[1:])]}
        return {"FailedEntryCount": 0, "Entries": [{} for _ in Entries]}

    def details(self) -> list[dict[str, Any]]:
        return [json.loads(entry["Detail"]) for batch in self.batches for entry in batch]


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    bus = Bus()
    monkeypatch.setattr(runtime, "_client", {"events": bus}.__getitem__)
    return bus


@pytest.fixture
def table(clock: ManualClock) -> StreamedTable:
    return StreamedTable(clock)


@pytest.fixture
def store(table: StreamedTable, clock: ManualClock) -> Operations:
    return store_over(table, clock)


def use(table: StreamedTable, store: Operations, *names: str) -> dict[str, Any]:
    """Each takes the lock of its name and releases it; returns the stream's batch."""
    for name in names:
        store.acquire(acquire(name, lock_name=name))
        store.release(release(name, lock_name=name))
    return {"Records": table.take()}


def test_all_that_a_batch_tells_is_published_ten_at_a_time_in_order(
    bus: Bus, table: StreamedTable, store: Operations
) -> None:
    assert published({"Records": []}) == {"published": 0}
    assert bus.batches == [], "of a batch of renewals nothing is asked"
    names = [f"lock-{number:02}" for number in range(12)]
    assert published(use(table, store, *names)) == {"published": 24}
    assert [len(batch) for batch in bus.batches] == [10, 10, 4]
    assert [detail["lock_name"] for detail in bus.details()] == sorted([*names, *names])
    first, second = bus.batches[0][:2]
    assert (first["Source"], first["DetailType"]) == ("fairlock", "Lock granted")
    assert second["DetailType"] == "Lock released"


def test_a_batch_that_comes_twice_gives_the_same_event_ids(
    bus: Bus, table: StreamedTable, store: Operations
) -> None:
    batch = use(table, store, "a")
    published(batch)
    published(batch)
    first, second = ([json.loads(one["Detail"]) for one in some] for some in bus.batches)
    assert first == second
    assert len({detail["event_id"] for detail in first}) == 2


def test_an_event_that_is_not_taken_is_an_error_so_that_the_batch_comes_again(
    bus: Bus, table: StreamedTable, store: Operations
) -> None:
    bus.refuses = True
    with pytest.raises(RuntimeError, match=r"refused 1 events: .*ThrottlingException"):
        published(use(table, store, "a"))


def test_an_event_that_eventbridge_would_never_take_holds_up_no_other(
    table: StreamedTable, store: Operations, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a principal that writes the table makes one."""
    store.acquire(acquire("anna", lock_name="spoilt", owner_name="x" * 300_000))
    store.acquire(acquire("ben", lock_name="good"))
    batch = {"Records": table.take()}
    published(batch)
    assert [detail["lock_name"] for detail in bus.details()] == ["good"]
    monkeypatch.setattr(publish, "_LARGEST_DETAIL", 10**6)  # The control: it would be sent.
    published(batch)
    assert len(bus.details()) == 3


def test_a_superseded_waiter_is_told_though_its_batch_says_nothing_of_the_lock(
    bus: Bus,
    table: StreamedTable,
    store: Operations,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "_client", {"events": bus, "dynamodb": table.inner}.__getitem__)
    monkeypatch.setenv("FAIRLOCK_TABLE_NAME", TABLE)
    for name, version in (("anna", 1), ("ben", 2), ("zita", 9)):
        store.acquire(
            acquire(name, waits=True, only_newest=version, task_token=name, execution_arn=RUN)
        )
        clock.advance(1)
    store.release(release("anna", execution_arn=RUN))
    removed = [record for record in table.take() if record["eventName"] == "REMOVE"]
    for record in removed:
        assert published({"Records": [record]})["published"] in (0, 1)
    [detail] = bus.details()
    assert (detail["owner_name"], detail["version"], detail["newest"]) == ("ben", 2, 9)


HOSTILE: tuple[dict[str, Any] | None, ...] = (
    {"S": ""},
    {"S": "\x1b[31m"},
    {"N": "1e400"},
    {"N": "NaN"},
    {"NULL": True},
    {"M": {}},
    {"L": [{"M": {"M": {"N": "x"}}}]},
    {"BOOL": False},
    {},
    None,
)


def test_whatever_is_in_an_attribute_a_record_stops_no_other(
    bus: Bus, table: StreamedTable, store: Operations
) -> None:
    """Only a principal that writes the table makes one."""
    good = use(table, store, "good")["Records"]
    store.acquire(acquire("anna", lock_name="bad", limit=2, data='{"n":1}'))
    store.change_ceiling(
        SetCeilingRequest(lock_name="bad", limit=1, reason="less", requested_by="olga")
    )
    spoilt = []
    for record, image, value in product(table.take(), ("OldImage", "NewImage"), HOSTILE):
        # All but the keys, which DynamoDB lets no one write as anything but strings.
        for name in {*record["dynamodb"].get(image, {})} - {"pk", "sk"}:
            changed: dict[str, Any] = copy.deepcopy(record)
            changed["dynamodb"][image][name] = value
            spoilt.append(changed)
    assert len(spoilt) > 10 * len(HOSTILE)
    for record in spoilt:
        bus.batches.clear()
        published({"Records": [record, *good]})
        assert [d["lock_name"] for d in bus.details()][-len(good) :] == ["good"] * len(good)
