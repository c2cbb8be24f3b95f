"""Holders that leave a lock: the part of an update that removes them from its item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.protocol import schema
from leasehold.protocol.expressions import Removal, number
from leasehold.protocol.model import Holder, LockState


@dataclass(frozen=True, slots=True)
class DepartingHolder:
    """A holder on its way out.

    Attributes:
        voluntary: whether the holder gives its permit back; else it is evicted, on condition that
            its revision is as seen, so that a heartbeat in between wins.
    """

    holder: Holder
    voluntary: bool

    def is_still_in(self, state: LockState) -> bool:
        """Whether the holder is still there, and has not renewed if it is to be evicted."""
        holder = state.holder(self.holder.owner_id)
        return holder is not None and (self.voluntary or holder.revision == self.holder.revision)


def removal(departing: DepartingHolder | None) -> Removal:
    """Removes a holder that gives its permit back or is evicted; nothing if there is none."""
    if departing is None:
        return Removal()
    if not departing.voluntary:
        return eviction([departing.holder])
    owner_id = departing.holder.owner_id
    return Removal(
        also_set=", #last_released = :departing",
        conditions=("attribute_exists(#departing)",),
        names={
            "#departing": schema.holder_attribute(owner_id),
            "#departing_token": schema.token_attribute(owner_id),
        },
        values={":departing": {"S": owner_id}},
    )


def eviction(holders: Sequence[Holder]) -> Removal:
    """Removes holders whose lease is over, each on condition that its revision is as seen."""
    numbered = list(enumerate(holders))
    names = {f"#over{i}": schema.holder_attribute(h.owner_id) for i, h in numbered}
    names |= {f"#over_token{i}": schema.token_attribute(h.owner_id) for i, h in numbered}
    return Removal(
        conditions=tuple(f"#over{i}.#h_revision = :seen{i}" for i, _ in numbered),
        names=names,
        values={f":seen{i}": number(h.revision) for i, h in numbered},
    )
