"""What must hold when executions end, are reaped, redriven, and keep their locks alive."""

from __future__ import annotations

from leasehold.protocol import schema
from leasehold.protocol.items import read_state
from leasehold.protocol.model import LockState
from tests.model.executions.actors import BEAT, Beats, Look, Status, Workflow
from tests.model.executions.scene import Promise
from tests.model.executions.transitions import MOST_ACQUISITIONS, Lives, Move, State

_STATE_KEY = ("LOCK#lock", "STATE")


class Judge:
    """Looks at the states and steps of one scene."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._cast = lives.scene.cast
        self._wanted = lives.scene.promises
        self._locks: dict[int, tuple[LockState, frozenset[str]]] = {}

    def _pick(self, *found: tuple[Promise, bool]) -> Promise | None:
        return next((p for p, holds in found if not holds and p in self._wanted), None)

    def _lock(self, table: int) -> tuple[LockState, frozenset[str]]:
        """The lock, and the owners that wait for it."""
        if table not in self._locks:
            items = self._lives.calls.items.all(table)
            lock = read_state(items.get(_STATE_KEY, {}))
            waiters = [i for (_, sk), i in items.items() if sk.startswith(schema.WAITER_PREFIX)]
            owners = frozenset(item[schema.OWNER_ID]["S"] for item in waiters)
            self._locks[table] = (lock, owners)
        return self._locks[table]

    def of_step(self, state: State, move: Move) -> Promise | None:
        """The first promise that a step breaks."""
        before, _ = self._lock(state.table)
        after, _ = self._lock(move.to.table)
        if state.table == move.to.table or not isinstance(self._cast[move.who], Look):
            return None
        held = {h.owner_id for h in before.holders}
        holds = {h.owner_id for h in after.holders}
        dead = self._owners(doomed=True) if not state.runs else set()
        return self._pick(
            (Promise.SPARED, not (held - holds) & self._spared(state)),
            (Promise.SKIPPED, not (holds - held) & dead),
        )

    def _spared(self, state: State) -> set[str]:
        """Those who live, and what the execution was granted since it was redriven."""
        granted = {
            member.owner_id(local.owner)
            for member, local in zip(self._cast, state.locals, strict=True)
            if isinstance(member, Workflow)
            and member.doomed
            and state.runs
            and local.status is Status.WORKING
            and local.told_in == state.stops
        }
        return self._owners(doomed=False) | granted

    def of_state(self, state: State) -> Promise | None:
        """The first promise that does not hold in a state."""
        lock, _ = self._lock(state.table)
        counted = lock.held == len(lock.holders) <= 1
        return self._pick(
            (Promise.LIMIT, counted),
            (Promise.HARMED, all(self._unharmed(state, who, lock) for who in self._workflows())),
            (Promise.FALSE_LOSS, not any(local.lost for local in state.locals)),
            (Promise.SILENT, all(self._will_know(state, who) for who in self._beats())),
        )

    def of_rest(self, state: State) -> Promise | None:
        """The first promise that does not hold where nobody has anything to do any more."""
        lock, waiting = self._lock(state.table)
        asleep = {
            member.owner_id(local.owner)
            for member, local in zip(self._cast, state.locals, strict=True)
            if isinstance(member, Workflow) and local.status is Status.ASLEEP
        }
        held = {holder.owner_id for holder in lock.holders}
        untold = asleep if state.kills < self._lives.scene.kills else set()
        ends = (
            state.locals[who].status is Status.DONE
            for who in (*self._beats(), *self._workflows())
            if state.runs or not self._cast[who].doomed
        )
        return self._pick(
            (Promise.FREE, not (held | waiting) - asleep),
            (Promise.WAKE_UP, asleep <= held & untold),
            (Promise.ENDS, bool(asleep) or all(ends)),
        )

    def _unharmed(self, state: State, who: int, lock: LockState) -> bool:
        member, local = self._cast[who], state.locals[who]
        assert isinstance(member, Workflow)
        if local.status is not Status.WORKING or local.told_in != state.stops:
            return True
        holder = lock.holder(member.owner_id(local.owner))
        return holder is not None and holder.fencing_token == local.told

    def _will_know(self, state: State, who: int) -> bool:
        """Whether one more beat, while nobody else moves, finds out the truth.

        Not looked at while the reaper, or another beat, is in the middle of something.
        """
        member, local = self._cast[who], state.locals[who]
        assert isinstance(member, Beats)
        at = self._cast.index(member.workflow)
        work = state.locals[at]
        works = work.status is Status.WORKING and work.current is None and not work.orphans
        quiet = not any(
            other.current
            for other, look in zip(state.locals, self._cast, strict=True)
            if isinstance(look, Look)
        )
        alive = state.runs or not member.doomed
        waits = local.status is Status.IDLE and not local.under_way()
        if not (works and quiet and alive and waits):
            return True
        after = self._lives.finished(state, who, BEAT)
        lock, _ = self._lock(after.table)
        holds = lock.holder(member.workflow.owner_id(work.owner)) is not None
        return holds or after.locals[at].lost

    def _owners(self, *, doomed: bool) -> set[str]:
        return {
            member.owner_id(owner)
            for member in self._cast
            if isinstance(member, Workflow) and member.doomed is doomed
            for owner in range(MOST_ACQUISITIONS + 1)
        }

    def _workflows(self) -> list[int]:
        return [i for i, member in enumerate(self._cast) if isinstance(member, Workflow)]

    def _beats(self) -> list[int]:
        return [i for i, member in enumerate(self._cast) if isinstance(member, Beats)]
