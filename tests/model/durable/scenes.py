"""The searches over durable executions, and their mutants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from fairlock.durable import durable_lock, holding
from fairlock.store import release
from tests.model import search
from tests.model.durable.scene import (
    DurableScene,
    Invariant,
    Move,
    Recorded,
    RecordedContext,
    State,
)
from tests.model.durable.world import LOCK, DurableWorld
from tests.model.mutant import Mutant


class Checker(search.Checker):
    """Checks the states and moves of one scene."""

    def __init__(self, world: DurableWorld, wanted: frozenset[Invariant]) -> None:
        super().__init__(wanted)
        self._world = world

    def broken_by(self, _state: State, move: Move) -> Invariant | None:
        return move.to.fault if move.to.fault in self.wanted else None

    def broken_in(self, state: State) -> Invariant | None:
        if Invariant.WAKE_UP not in self.wanted or state.lost < self._world.scene.lost:
            return None
        owners = self._world.owner_ids(state)
        for at, execution in enumerate(state.executions):
            holds = any(owner.startswith(f"owner-of-{at}-") for owner in owners)
            if holds and execution.status == "running":
                asleep = self._world.is_asleep(state, at)
                if asleep is not None and "granted" in asleep:
                    return Invariant.WAKE_UP
        return None

    def broken_at_rest(self, state: State, moves: Sequence[Move]) -> Invariant | None:
        if any(move.must for move in moves):
            return None
        if any(each.status == "running" for each in state.executions):
            return self.pick((Invariant.ENDED, False))
        is_free = not self._world.owner_ids(state) and not self._world.table(state).waiters(LOCK)
        return self.pick((Invariant.FREE, is_free))


DURABLE_SCENES: Final = (
    DurableScene(name="a function dies at any of its operations, alone", kills=2),
    DurableScene(
        name="a function whose work fails dies at any of its operations", kills=2, fails=True
    ),
    DurableScene(
        name="a durable execution waits, dies, and pushes to it are lost",
        anna_holds=True,
        kills=1,
        lost=1,
        timeouts=1,
    ),
    DurableScene(
        name="a durable execution gives up in the moment in which it is handed the lock",
        anna_holds=True,
        kills=1,
        lost=1,
        gives_up=True,
    ),
    DurableScene(name="two durable executions, whose functions die", executions=2, kills=2),
    DurableScene(
        name="two durable executions behind an owner, one of which gives up",
        executions=2,
        anna_holds=True,
        gives_up=True,
    ),
    DurableScene(
        name="two durable executions behind an owner, a death and a lost push",
        executions=2,
        anna_holds=True,
        kills=1,
        lost=1,
    ),
    DurableScene(
        name="one of two durable executions is stopped, at any time",
        executions=2,
        anna_holds=True,
        lost=1,
        stops=1,
    ),
    DurableScene(name="three durable executions", executions=3, lost=1),
    DurableScene(
        name="a release is repeated after another owner has come and gone",
        kills=1,
        passes_through=True,
    ),
)
_ALONE: Final = DurableScene(name="alone", kills=1)
_BEHIND: Final = DurableScene(name="behind", anna_holds=True, lost=1)


def _enter_unrecorded(step: Any) -> Any:  # noqa: ANN401 - a method
    def unrecorded(self: RecordedContext, func: Any, name: str, config: Any = None) -> Any:  # noqa: ANN401 - same
        return func(None) if name.endswith("enter") else step(self, func, name, config)

    return unrecorded


def _callback_anew(create: Any) -> Any:  # noqa: ANN401 - a method
    def again(self: RecordedContext, name: str, config: Any) -> Any:  # noqa: ANN401 - same
        if self.left:
            return create(self, name, config)
        # A replay that has nothing else to do made another one.
        self.log.setdefault(f"{name} again", Recorded("started"))
        return create(self, f"{name} again", config)

    return again


def _never_leaves(_self: object, _purpose: str, *, entered: bool) -> None:
    assert isinstance(entered, bool)


DURABLE_MUTANTS: Final[dict[str, Mutant]] = {
    "a durable execution releases when it is suspended": Mutant(
        Invariant.HELD,
        _ALONE,
        ((holding, "_is_end_of_block", lambda _error: True),),
    ),
    "an owner id is made outside of a step": Mutant(
        Invariant.FREE,
        _ALONE,
        ((RecordedContext, "step", _enter_unrecorded(RecordedContext.step)),),
    ),
    "a callback is made again on each replay": Mutant(
        Invariant.WAKE_UP,
        _BEHIND,
        ((RecordedContext, "create_callback", _callback_anew(RecordedContext.create_callback)),),
    ),
    "an execution that gives up does not leave": Mutant(
        Invariant.FREE,
        DurableScene(name="gives up", anna_holds=True, gives_up=True),
        ((durable_lock.Acquisition, "_leave", _never_leaves),),
    ),
    "a release does not count its repeats": Mutant(
        Invariant.FALSE_LOSS,
        DurableScene(name="repeated", kills=1, passes_through=True),
        (
            (durable_lock, "REPEATS_COUNTED", durable_lock.REPEATED),
            # The claim knows it too, unless the function died before it had marked that.
            (release, "gave_back_before", lambda _item: False),
        ),
    ),
}
