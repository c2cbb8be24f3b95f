"""What must hold when executions end, are reaped and redriven, and renew their locks."""

from __future__ import annotations

from collections.abc import Sequence

from fairlock.protocol.model import LockState
from tests.model.executions.actors import (
    HEARTBEAT,
    Heartbeats,
    Move,
    ReapPass,
    State,
    Status,
    Workflow,
)
from tests.model.executions.scenes import Invariant
from tests.model.executions.transitions import MOST_ACQUISITIONS, NO_WORKFLOW, World
from tests.model.numbered_tables import LockOfTable
from tests.model.scene import Fault, spent


class CheckedWorld(World):
    """Checks its states and moves."""

    def _lock(self, table: int) -> LockOfTable:
        return self.calls.tables.lock(table)

    def broken_by(self, state: State, move: Move) -> Invariant | None:
        """Only a pass of the reaper breaks something."""
        if state.table == move.to.table or move.by == NO_WORKFLOW:
            return None
        if not isinstance(self.scene.actors[move.by], ReapPass):
            return None
        before, after = self._lock(state.table).state, self._lock(move.to.table).state
        held = {h.owner_id for h in before.holders}
        holds = {h.owner_id for h in after.holders}
        dead = self._owners(stoppable=True) if not state.runs else set()
        return self.pick(
            (Invariant.SPARED, not (held - holds) & self._spared(state)),
            (Invariant.SKIPPED, not (holds - held) & dead),
        )

    def _spared(self, state: State) -> set[str]:
        """Owners that live, and those that the execution was granted since it was redriven."""
        granted = {
            actor.owner_id(local.owner)
            for actor, local in zip(self.scene.actors, state.locals, strict=True)
            if isinstance(actor, Workflow)
            and actor.stoppable
            and state.runs
            and local.status is Status.WORKING
            and local.told_in == state.stops
        }
        return self._owners(stoppable=False) | granted

    def broken_in(self, state: State) -> Invariant | None:
        lock, _, _ = self._lock(state.table)
        counted = lock.held == len(lock.holders) <= 1
        return self.pick(
            (Invariant.LIMIT, counted),
            (Invariant.HARMED, all(self._unharmed(state, at, lock) for at in self._workflows())),
            (Invariant.FALSE_LOSS, not any(local.lost for local in state.locals)),
            (Invariant.SILENT, all(self._will_know(state, at) for at in self._heartbeats())),
        )

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> Invariant | None:
        """The first that does not hold in a state where no one has anything to do any more."""
        if any(move.must for move in moves):
            return None
        lock, waiting, _ = self._lock(state.table)
        asleep = {
            actor.owner_id(local.owner)
            for actor, local in zip(self.scene.actors, state.locals, strict=True)
            if isinstance(actor, Workflow) and local.status is Status.ASLEEP
        }
        held = {holder.owner_id for holder in lock.holders}
        met = spent(self.scene.faults, state.left)
        untold = set() if met.isdisjoint({Fault.KILL, Fault.COPY}) else asleep
        ends = (
            state.locals[at].status is Status.DONE
            for at in (*self._heartbeats(), *self._workflows())
            if state.runs or not self.scene.actors[at].stoppable
        )
        return self.pick(
            (Invariant.FREE, not held.union(waiting) - asleep),
            (Invariant.WAKE_UP, asleep <= held & untold),
            (Invariant.ENDS, bool(asleep) or all(ends)),
        )

    def _unharmed(self, state: State, at: int, lock: LockState) -> bool:
        actor, local = self.scene.actors[at], state.locals[at]
        assert isinstance(actor, Workflow)
        if local.status is not Status.WORKING or local.told_in != state.stops:
            return True
        holder = lock.holder(actor.owner_id(local.owner))
        return holder is not None and holder.fencing_token == local.told

    def _will_know(self, state: State, at: int) -> bool:
        """Whether one more heartbeat, while no one else moves, finds out the truth.

        Not checked while the reaper, or another heartbeat, is in the middle of something.
        """
        actor, local = self.scene.actors[at], state.locals[at]
        assert isinstance(actor, Heartbeats)
        work_at = self.scene.actors.index(actor.workflow)
        work = state.locals[work_at]
        works = work.status is Status.WORKING and work.current is None and not work.orphans
        quiet = not any(
            other.current
            for other, its_actor in zip(state.locals, self.scene.actors, strict=True)
            if isinstance(its_actor, ReapPass)
        )
        alive = state.runs or not actor.stoppable
        waits = local.status is Status.IDLE and not local.under_way()
        if not (works and quiet and alive and waits):
            return True
        after = self.finished(state, at, HEARTBEAT)
        lock, _, _ = self._lock(after.table)
        holds = lock.holder(actor.workflow.owner_id(work.owner)) is not None
        return holds or after.locals[work_at].lost

    def _owners(self, *, stoppable: bool) -> set[str]:
        return {
            actor.owner_id(owner)
            for actor in self.scene.actors
            if isinstance(actor, Workflow) and actor.stoppable is stoppable
            for owner in range(MOST_ACQUISITIONS + 1)
        }

    def _workflows(self) -> list[int]:
        return [i for i, actor in enumerate(self.scene.actors) if isinstance(actor, Workflow)]

    def _heartbeats(self) -> list[int]:
        return [i for i, actor in enumerate(self.scene.actors) if isinstance(actor, Heartbeats)]
