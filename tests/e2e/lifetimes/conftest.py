"""All scenarios run at the same time, beside the tests that are quick; their figures are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pytest

from tests.e2e.deployment import Deployment
from tests.e2e.lifetimes import keep_alive, late_acquires, workflow_deaths
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES, CONTROL_TIMES, MOST_CALLING, TIMES
from tests.e2e.scenario_runs import Scenario, ScenarioRuns, begun, warm_up


@pytest.fixture(scope="session")
def deployment(dying: Deployment) -> Deployment:
    return dying


@pytest.fixture(scope="session", autouse=True)
def runs(deployment: Deployment) -> Iterator[ScenarioRuns]:
    environments = MOST_CALLING + MOST_CALLING // 2
    warm_up(deployment, environments=environments)
    warm_up(deployment, environments=MOST_CALLING, operations=("Heartbeat",))
    warm_up(deployment.of("Unreaped"), environments=environments)
    with begun(deployment, SCENARIOS) as runs:
        yield runs


# The scenarios, those first that take longest.

FOLLOWED_EVERY: Final = 3
UNNOTICED_SECONDS: Final = 4
"""How long a lock is watched whose workflow's death no one notices."""

REAPED: Final[dict[str, tuple[Callable[..., Any], tuple[str, ...], str]]] = {
    "in the work": (workflow_deaths.in_work, ("Dies", "DiesKeptAlive"), "Unreaped"),
    "in the wait": (workflow_deaths.in_wait, ("Dies", "DiesKeptAlive"), "Unreaped"),
    "in acquire": (workflow_deaths.in_acquire, ("DiesAtGate",), "UnreapedAtGate"),
    "in release": (workflow_deaths.in_release, ("DiesAtGate",), "UnreapedAtGate"),
    "by its timeout": (
        workflow_deaths.voluntary,
        ("DiesByTimeout", "KeepAliveTimeout"),
        "UnreapedByTimeout",
    ),
    "by States.Runtime": (
        workflow_deaths.voluntary,
        ("DiesByError", "KeepAliveRuntime"),
        "UnreapedByError",
    ),
    "with its task": (workflow_deaths.with_its_task, ("DiesWithTask",), "UnreapedWithTask"),
}
"""How a workflow dies, on which machines, and on which one whose deaths no one notices."""


def _noticed(death: Callable[..., Any], machines: Sequence[str]) -> list[Scenario]:
    """Each time of FOLLOWED_EVERY another caller waits behind."""
    return [
        partial(
            death,
            machine=machines[number % len(machines)],
            followed=number % FOLLOWED_EVERY == 0,
            within=workflow_deaths.WITHIN_SECONDS,
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
    "replayed": [late_acquires.twice_in_reverse_order] * ALIKE_TIMES,
    "redriven, free": [
        partial(
            keep_alive.redriven,
            machine="DiesKeptAlive",
            seconds=keep_alive.PAST_SECOND_PASS_SECONDS
            if number < TIMES // 2
            else keep_alive.UNGUARDED_SECONDS,
            taken=False,
        )
        for number in range(TIMES)
    ],
    "late, no second pass": [
        partial(late_acquires.without_second_pass, requests=number % 2) for number in range(2)
    ],
    "late, free": [
        partial(late_acquires.on_a_free_lock, requests=late_acquires.BEFORE_ITS_CLAIM, used=False)
    ]
    * (TIMES // 2),
    "late, used": [
        partial(late_acquires.on_a_free_lock, requests=late_acquires.BEFORE_THE_LOCK, used=True)
    ]
    * (TIMES // 2),
    "late, refused": [
        partial(late_acquires.on_a_free_lock, requests=late_acquires.BEFORE_THE_LOCK, used=False)
    ]
    * CONTROL_TIMES,
    "late, taken": [
        partial(late_acquires.on_a_taken_lock, requests=number % 2) for number in range(TIMES)
    ],
    "overrun": [partial(keep_alive.knocked_at, machine="Plain")] * ALIKE_TIMES,
    "overrun, robbed": [partial(keep_alive.by_contenders_that_do_not_ask, machine="Plain")]
    * CONTROL_TIMES,
    "unnoticed, workflow": [partial(workflow_deaths.for_a_workflow, machine="UnreapedPlain")]
    * ALIKE_TIMES,
    "unnoticed, caller": [partial(workflow_deaths.for_a_caller, machine="UnreapedPlain")]
    * ALIKE_TIMES,
    "unnoticed, running": [partial(workflow_deaths.while_it_runs, machine="UnreapedPlain")]
    * CONTROL_TIMES,
    "express": [
        partial(workflow_deaths.express, machine=machine)
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
                workflow_deaths.in_work,
                machine="Watched",
                followed=False,
                within=workflow_deaths.WITHIN_SECONDS,
            ),
        )
    ]
    * ALIKE_TIMES,
    "dies unwatched": [
        _at(
            "Unreaped",
            partial(
                workflow_deaths.in_work,
                machine="Unreaped",
                followed=False,
                within=UNNOTICED_SECONDS,
            ),
        )
    ]
    * ALIKE_TIMES,
    **{
        f"dies {how}, unnoticed": _unnoticed(death, machine)
        for how, (death, _, machine) in REAPED.items()
    },
    "event of the living": [late_acquires.of_the_living] * CONTROL_TIMES,
    "lock lost": [
        partial(keep_alive.lost_to_force, machine="KeepAliveChain", seconds=keep_alive.LONG_SECONDS)
    ]
    * ALIKE_TIMES,
    "lock lost, not kept alive": [
        partial(keep_alive.force_released, machine="Plain", seconds=keep_alive.UNGUARDED_SECONDS)
    ]
    * CONTROL_TIMES,
    "redriven, taken": [
        partial(
            keep_alive.redriven,
            machine="DiesKeptAlive",
            seconds=keep_alive.LONG_SECONDS,
            taken=True,
        )
    ]
    * ALIKE_TIMES,
    "redriven, not reaped": [
        partial(
            keep_alive.redriven,
            machine="DiesKeptAlive",
            seconds=keep_alive.UNGUARDED_SECONDS,
            taken=False,
            reaped=False,
        )
    ]
    * CONTROL_TIMES,
    "redriven, not kept alive": [
        partial(
            keep_alive.redriven, machine="Dies", seconds=keep_alive.UNGUARDED_SECONDS, taken=taken
        )
        for taken in (True, False)
    ],
}

SCENARIOS: Final = {**_LONG, **_SHORT}
