"""A lock's item, in a form that a model can be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.property.reference_locks import Lock


@dataclass(frozen=True)
class Stored:
    """What matters of an item; of one that does not exist, all is empty."""

    held: int = 0
    newest_token: int | None = None
    last_released: str | None = None
    ttl_seconds: int = 0
    holders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @staticmethod
    def of(lock: Lock | None) -> Stored:
        if lock is None:
            return Stored()
        return Stored(
            held=len(lock.places),
            newest_token=lock.last_token,
            last_released=lock.last_released,
            ttl_seconds=lock.ttl_seconds,
            holders={
                owner: {
                    "token": place.token,
                    "acquired_at_ms": place.acquired_ms,
                    "expires_at_ms": place.expires_ms,
                    "lease_ms": place.lease_ms,
                    "revision": place.revision,
                }
                for owner, place in lock.places.items()
            },
        )


def read_stored(item: Mapping[str, Any]) -> Stored:
    if not item:
        return Stored()
    owners = [name.removeprefix("holder:") for name in item if name.startswith("holder:")]
    numbers = ("acquired_at_ms", "expires_at_ms", "lease_ms", "revision")
    return Stored(
        held=int(item["held"]["N"]),
        newest_token=int(item["fencing_token"]["N"]),
        last_released=item.get("last_released", {}).get("S"),
        ttl_seconds=int(item["expiry_time"]["N"]),
        holders={
            owner: {
                "token": int(item[f"token:{owner}"]["N"]),
                **{name: int(item[f"holder:{owner}"]["M"][name]["N"]) for name in numbers},
            }
            for owner in owners
        },
    )
