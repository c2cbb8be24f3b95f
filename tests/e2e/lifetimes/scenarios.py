"""All scenarios, those first that take longest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tests.e2e.lifetimes import deaths, kept, late, overrun, replayed, unnoticed
from tests.e2e.lifetimes.scene import ALIKE_TIMES, CONTROL_TIMES, TIMES
from tests.e2e.scenario_runs import Scenario

FOLLOWED_EVERY: Final = 3
UNNOTICED_SECONDS: Final = 4
"""How long a lock is watched whose workflow's death nobody notices."""

REAPED: Final[dict[str, tuple[Callable[..., Any], tuple[str, ...], str]]] = {
    "in the work": (deaths.in_work, ("Dies", "DiesKept"), "Unreaped"),
    "in the wait": (deaths.in_wait, ("Dies", "DiesKept"), "Unreaped"),
    "in acquire": (deaths.in_acquire, ("DiesAtGate",), "UnreapedAtGate"),
    "in release": (deaths.in_release, ("DiesAtGate",), "UnreapedAtGate"),
    "by its timeout": (
        deaths.voluntary,
        ("DiesByTimeout", "KeepAliveTimeout"),
        "UnreapedByTimeout",
    ),
    "by States.Runtime": (
        deaths.voluntary,
        ("DiesByError", "KeepAliveRuntime"),
        "UnreapedByError",
    ),
    "with its task": (deaths.with_its_task, ("DiesWithTask",), "UnreapedWithTask"),
}
"""How a workflow dies, on which machines, and on which one whose deaths nobody notices."""


def _noticed(death: Callable[..., Any], machines: Sequence[str]) -> list[Scenario]:
    """Each time of FOLLOWED_EVERY somebody waits behind."""
    return [
        partial(
            death,
            machine=machines[number % len(machines)],
            followed=number % FOLLOWED_EVERY == 0,
            within=deaths.WITHIN_SECONDS,
        )
        for number in range(TIMES)
    ]


def _unnoticed(death: Callable[..., Any], machine: str) -> list[Scenario]:
    gates = {"stack": "Unreaped"} if machine.endswith("Gate") else {}
    play = partial(death, machine=machine, followed=False, within=UNNOTICED_SECONDS, **gates)
    return [_at("Unreaped", play)] * CONTROL_TIMES


def _at(service: str, play: Scenario) -> Scenario:
    return lambda deployment: play(deployment.of(service))


_LONG: Final[dict[str, Sequence[Scenario]]] = {
    "replayed": [replayed.twice_in_reverse_order] * ALIKE_TIMES,
    "redriven, free": [
        partial(
            kept.redriven,
            machine="DiesKept",
            seconds=kept.PAST_SECOND_LOOK_SECONDS
            if number < TIMES // 2
            else kept.UNGUARDED_SECONDS,
            taken=False,
        )
        for number in range(TIMES)
    ],
    "late, no second look": [
        partial(late.without_second_look, requests=number % 2) for number in range(2)
    ],
    "late, free": [
        *[partial(late.on_a_free_lock, requests=late.BEFORE_ITS_CLAIM, used=False)] * (TIMES // 2),
        *[partial(late.on_a_free_lock, requests=late.BEFORE_THE_LOCK, used=True)] * (TIMES // 2),
    ],
    "late, refused": [partial(late.on_a_free_lock, requests=late.BEFORE_THE_LOCK, used=False)]
    * CONTROL_TIMES,
    "late, taken": [partial(late.on_a_taken_lock, requests=number % 2) for number in range(TIMES)],
    "overrun": [partial(overrun.knocked_at, machine="Plain")] * ALIKE_TIMES,
    "overrun, robbed": [partial(overrun.by_contenders_that_do_not_ask, machine="Plain")]
    * CONTROL_TIMES,
    "unnoticed, workflow": [partial(unnoticed.for_a_workflow, machine="UnreapedPlain")]
    * ALIKE_TIMES,
    "unnoticed, caller": [partial(unnoticed.for_a_caller, machine="UnreapedPlain")] * ALIKE_TIMES,
    "unnoticed, running": [partial(unnoticed.while_it_runs, machine="UnreapedPlain")]
    * CONTROL_TIMES,
    "express": [
        partial(unnoticed.express, machine=machine)
        for machine in ("ExpressByTimeout", "ExpressByError")
    ]
    * (TIMES // 2),
}

_SHORT: Final[dict[str, Sequence[Scenario]]] = {
    **{f"dies {how}": _noticed(death, machines) for how, (death, machines, _) in REAPED.items()},
    "dies watched": [
        _at(
            "Unreaped",
            partial(
                deaths.in_work, machine="Watched", followed=False, within=deaths.WITHIN_SECONDS
            ),
        )
    ]
    * ALIKE_TIMES,
    "dies unwatched": [
        _at(
            "Unreaped",
            partial(deaths.in_work, machine="Unreaped", followed=False, within=UNNOTICED_SECONDS),
        )
    ]
    * ALIKE_TIMES,
    **{
        f"dies {how}, unnoticed": _unnoticed(death, machine)
        for how, (death, _, machine) in REAPED.items()
    },
    "event of the living": [replayed.of_the_living] * CONTROL_TIMES,
    "lock lost": [partial(kept.force_released, machine="KeepAliveChain", seconds=kept.LONG_SECONDS)]
    * ALIKE_TIMES,
    "lock lost, not kept alive": [
        partial(kept.force_released, machine="Plain", seconds=kept.UNGUARDED_SECONDS)
    ]
    * CONTROL_TIMES,
    "redriven, taken": [
        partial(kept.redriven, machine="DiesKept", seconds=kept.LONG_SECONDS, taken=True)
    ]
    * ALIKE_TIMES,
    "redriven, not reaped": [
        partial(
            kept.redriven,
            machine="DiesKept",
            seconds=kept.UNGUARDED_SECONDS,
            taken=False,
            reaped=False,
        )
    ]
    * CONTROL_TIMES,
    "redriven, not kept alive": [
        partial(kept.redriven, machine="Dies", seconds=kept.UNGUARDED_SECONDS, taken=taken)
        for taken in (True, False)
    ],
}

SCENARIOS: Final = {**_LONG, **_SHORT}
