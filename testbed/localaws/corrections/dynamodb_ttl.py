"""TTL deletes expired items soon, and the stream tells.

AWS (DynamoDB developer guide, "Using time to live (TTL)"): items whose TTL attribute is a number
of epoch seconds in the past, but not more than five years, are deleted within a few days; the
stream's REMOVE record carries the service's userIdentity.

Emulator: one sweep a minute, of any number however old, and the stream learns nothing.

This: own sweeps, every LOCALAWS_TTL_SECONDS (default 1: tests do not wait for days), on the event
loop where all other writes happen. The emulator's own sweep removes nothing any more.
"""

import contextvars
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import ministack.app
from ministack.core.responses import set_request_account_id, set_request_region
from ministack.services import dynamodb

FIVE_YEARS_SECONDS = 5 * 365.25 * 86_400
_EMULATOR_SWEEP_THREAD = "dynamodb-ttl-reaper"
_SERVICE = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}

_sweeping: contextvars.ContextVar[bool] = contextvars.ContextVar("ttl_sweep", default=False)


def apply() -> None:
    """Replace the emulator's sweep, and sign the stream records of ours."""
    _wrap_change_record()
    remove_item = dynamodb._remove_item

    def remove_unless_emulators_sweep(*arguments: Any) -> Any:
        if threading.current_thread().name == _EMULATOR_SWEEP_THREAD:
            return None
        return remove_item(*arguments)

    dynamodb._remove_item = remove_unless_emulators_sweep
    seconds = float(os.environ.get("LOCALAWS_TTL_SECONDS", "1"))
    threading.Thread(target=_sweep_for_ever, args=(seconds,), name="ttl", daemon=True).start()


def _wrap_change_record() -> None:
    original = dynamodb._build_change_record

    def build_change_record(*arguments: Any) -> dict[str, Any]:
        record: dict[str, Any] = original(*arguments)
        if _sweeping.get():
            # Streams read by Lambda spell it in lower case, Kinesis in upper: the emulator takes
            # this one record for both.
            record["userIdentity"] = {
                **_SERVICE,
                "Type": _SERVICE["type"],
                "PrincipalId": _SERVICE["principalId"],
            }
        return record

    dynamodb._build_change_record = build_change_record


def _sweep_for_ever(seconds: float) -> None:
    while True:
        time.sleep(seconds)
        loop = ministack.app._MAIN_LOOP
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_sweep, context=contextvars.Context())


def _sweep() -> None:
    _sweeping.set(True)
    for (account, region, name), settings in list(dynamodb._ttl_settings.all_items()):
        table = dynamodb._tables.get_scoped(account, region, name)
        if table is None or settings.get("TimeToLiveStatus") != "ENABLED":
            continue
        set_request_account_id(account)
        set_request_region(region)
        for partition_key, sort_key, item in _expired(table, settings["AttributeName"]):
            dynamodb._remove_item(table, partition_key, sort_key)
            dynamodb._emit_stream_event(name, "REMOVE", item, None)


def _expired(table: Any, attribute: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    now = time.time()
    for partition_key, partition in list(table["items"].items()):
        for sort_key, item in list(partition.items()):
            number = item.get(attribute, {}).get("N")
            if number is not None and now - FIVE_YEARS_SECONDS < float(number) <= now:
                yield partition_key, sort_key, item
