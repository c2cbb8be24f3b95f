"""What must hold for durable executions, in each state and at rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.durable.scene import Invariant, Move, State
from tests.model.durable.world import LOCK, DurableWorld


@dataclass(frozen=True, slots=True)
class Checker:
    """Names the first invariant that does not hold."""

    world: DurableWorld
    wanted: frozenset[Invariant]

    def broken_by(self, _state: State, move: Move) -> Invariant | None:
        return self._if_wanted(move.to.fault)

    def broken_in(self, state: State) -> Invariant | None:
        if Invariant.WAKE_UP not in self.wanted or state.lost < self.world.scene.lost:
            return None
        owners = self.world.owner_ids(state)
        for at, execution in enumerate(state.executions):
            holds = any(owner.startswith(f"owner-of-{at}-") for owner in owners)
            if holds and execution.status == "running":
                asleep = self.world.is_asleep(state, at)
                if asleep is not None and "granted" in asleep:
                    return Invariant.WAKE_UP
        return None

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> Invariant | None:
        if any(move.must for move in moves):
            return None
        if any(each.status == "running" for each in state.executions):
            return self._if_wanted(Invariant.ENDED)
        is_free = not self.world.owner_ids(state) and not self.world.table(state).waiters(LOCK)
        return None if is_free else self._if_wanted(Invariant.FREE)

    def _if_wanted(self, fault: Invariant | None) -> Invariant | None:
        return fault if fault in self.wanted else None
