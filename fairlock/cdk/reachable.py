"""Which states of a machine an execution may come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlock.cdk.machine_definitions import Transition


def reachable(
    steps: Sequence[Transition], begin: Iterable[str | None], *, stop: str
) -> set[str | None]:
    """The names of the states that are reached from those in `begin`, themselves included.

    Args:
        steps: the transitions of one machine.
        begin: names of states; None for where the machine begins.
        stop: the name of a state that is not left; it may be reached.
    """
    targets: dict[str | None, list[str]] = {}
    for step in steps:
        targets.setdefault(step.source, []).append(step.target)
    found: set[str | None] = set()
    left = list(begin)
    while left:
        state = left.pop()
        if state not in found:
            found.add(state)
            left += () if state == stop else targets.get(state, ())
    return found
