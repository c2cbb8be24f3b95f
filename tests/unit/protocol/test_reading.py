"""Items that Fairlock did not write: a typed error that shows no owner_id."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from fairlock.errors import LockItemMalformed
from fairlock.protocol import claims, items, schema
from fairlock.testing.fake_table import MemoryTable
from tests.support import TABLE, FakeClock, acquire, owner, store_over

RUN = "arn:aws:states:us-east-1:123456789012:execution:billing:run"
ANNA = owner("anna")


def written_items() -> dict[str, dict[str, Any]]:
    """A lock with a holder, its waiter, and the claim of a workflow, as the store writes them."""
    table = MemoryTable()
    store = store_over(table, FakeClock(), table=TABLE)
    store.acquire(acquire("anna", execution_arn=RUN))
    store.acquire(acquire("anna2", waits=True))
    kinds = {"STATE": "state", "WAITER": "waiter", "LOCK": "claim"}
    return {kinds[sk.partition("#")[0]]: item for (_, sk), item in table.items.items()}


READERS: dict[str, Callable[[Any], object]] = {
    "state": items.read_state,
    "waiter": lambda item: items.read_waiter("nightly", item),
    "claim": lambda item: claims.read_claim(RUN, item),
}


def damaged(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The item with each attribute of another type in turn, those of holders too."""
    wrong: list[dict[str, Any]] = [{"NULL": True}, {"S": "x"}, {"M": {}}, {"N": "x"}]
    for name, value in item.items():
        if name in {schema.PARTITION_KEY, schema.SORT_KEY}:
            continue
        yield from ({**item, name: each} for each in wrong)
        for inner in value.get("M", {}):
            broken = deepcopy(item)
            broken[name]["M"][inner] = {"NULL": True}
            yield broken


def refusal(kind: str, item: dict[str, Any]) -> LockItemMalformed | None:
    try:
        READERS[kind](item)
    except LockItemMalformed as error:
        return error
    return None


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_item_is_read_or_named_and_no_owner_id_is_shown(kind: str) -> None:
    item = written_items()[kind]
    errors = [error for broken in damaged(item) if (error := refusal(kind, broken)) is not None]
    assert len(errors) > 3
    assert {error.partition_key for error in errors} == {item["pk"]["S"]}
    for error in errors:
        assert ANNA not in "".join(traceback.format_exception(error))


def test_without_the_typed_error_the_owner_id_would_be_shown() -> None:
    state = written_items()["state"]
    holder = next(name for name in state if ANNA in name)
    del state[holder]
    with pytest.raises(KeyError) as caught:
        inspect.unwrap(items.read_holder)(state, ANNA)
    assert ANNA in str(caught.value)
