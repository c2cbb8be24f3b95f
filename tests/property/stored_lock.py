"""A lock's item, in a form that a reference lock can be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.property.reference_locks import Lock


@dataclass(frozen=True)
class StoredLock:
    """What matters of an item; of one that does not exist, all is empty."""

    held: int = 0
    newest_token: int | None = None
    last_released: str | None = None
    ttl_seconds: int = 0
    limit: int = 0
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(lock: Lock | None) -> StoredLock:
        if lock is None:
            return StoredLock()
        return StoredLock(
            held=len(lock.permits),
            newest_token=lock.last_token,
            last_released=lock.last_released,
            ttl_seconds=lock.ttl_seconds,
            limit=lock.limit,
            holders={
                owner: {
                    "token": permit.token,
                    "acquired_at_ms": permit.acquired_ms,
                    "expires_at_ms": permit.expires_ms,
                    "lease_ms": permit.lease_ms,
                    "limit": permit.limit,
                    "revision": permit.revision,
                }
                for owner, permit in lock.permits.items()
            },
        )


def read_stored(item: Mapping[str, Any]) -> StoredLock:
    if not item:
        return StoredLock()
    owners = [name.removeprefix("holder:") for name in item if name.startswith("holder:")]
    numbers = {
        "acquired_at_ms": "a",
        "expires_at_ms": "e",
        "lease_ms": "l",
        "limit": "n",
        "revision": "r",
    }
    return StoredLock(
        held=int(item["held"]["N"]),
        newest_token=int(item["fencing_token"]["N"]),
        last_released=item.get("last_released", {}).get("S"),
        ttl_seconds=int(item["expiry_time"]["N"]),
        limit=int(item["limit"]["N"]),
        holders={
            owner: {
                "token": int(item[f"token:{owner}"]["N"]),
                **{
                    name: int(item[f"holder:{owner}"]["M"][short]["N"])
                    for name, short in numbers.items()
                },
            }
            for owner in owners
        },
    )
