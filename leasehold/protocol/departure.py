"""Holders that leave a lock: the part of an update that removes them from its item.

A holder releases, is evicted because its lease is over, or is released by force: by somebody who
has seen its grant, and names that by the fencing token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.protocol import schema
from leasehold.protocol.expressions import Removal, number
from leasehold.protocol.items import new_forced_release
from leasehold.protocol.model import ForcedRelease, Holder, LockState


@dataclass(frozen=True, slots=True)
class DepartingHolder:
    """A holder on its way out.

    Attributes:
        voluntary: whether the holder gives its permit back; else it is evicted, on condition that
            its revision is as seen, so that a heartbeat in between wins.
        forced: who releases it by force, and why; on condition that its grant is the one that was
            seen, whose fencing token no other has. A heartbeat in between does not prevent that.
    """

    holder: Holder
    voluntary: bool
    forced: ForcedRelease | None = None

    @property
    def is_marked(self) -> bool:
        """Whether the write that takes the holder out leaves a mark of it in the lock."""
        return self.voluntary or self.forced is not None

    def is_still_in(self, state: LockState) -> bool:
        """Whether the holder is still there, and has not renewed if it is to be evicted."""
        holder = state.holder(self.holder.owner_id)
        if holder is None:
            return False
        if self.forced is not None:
            return holder.fencing_token == self.holder.fencing_token
        return self.voluntary or holder.revision == self.holder.revision

    def left_before(self, state: LockState) -> bool:
        """Whether the mark of this very departure is there: it was written before."""
        if self.forced is not None:
            last = state.last_forced_release
            return last is not None and last.fencing_token == self.holder.fencing_token
        return self.voluntary and state.last_released == self.holder.owner_id


def removal(departing: DepartingHolder | None) -> Removal:
    """Removes a holder that gives its permit back or is evicted; nothing if there is none."""
    if departing is None:
        return Removal()
    if not departing.is_marked:
        return eviction([departing.holder])
    owner_id = departing.holder.owner_id
    names = {
        "#departing": schema.holder_attribute(owner_id),
        "#departing_token": schema.token_attribute(owner_id),
    }
    if departing.forced is not None:
        # The mark of the last owner who released stays: this one has not, and must be told so.
        return Removal(
            also_set=", #last_forced_release = :forced",
            conditions=("#departing_token = :seen_grant",),
            names=names,
            values={
                ":forced": new_forced_release(departing.forced),
                ":seen_grant": number(departing.holder.fencing_token),
            },
        )
    return Removal(
        also_set=", #last_released = :departing",
        conditions=("attribute_exists(#departing)",),
        names=names,
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
