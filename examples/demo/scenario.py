"""The demo's acts: without the guard, with it in both modes, and with something going wrong."""

import time
from collections.abc import Mapping
from typing import Any

from examples.demo.facts import Execution, Incident, Mode, Role, Run
from examples.demo.runner import Runner, Watcher

ACCOUNTS = ("alice", "bob", "carol")
CHARGES_PER_ACCOUNT = 4
WORK_SECONDS = 1.0
ERROR = "CardDeclined"
CLOCK_TOLERANCE_SECONDS = 2
APART_SECONDS = 0.06

FAILING_WORK_SECONDS = 1.5
STOPPED_WORK_SECONDS = 5.0
STOPPED_AFTER_SECONDS = 2.0
RUN_DEADLINE_SECONDS = 300.0
INCIDENT_DEADLINE_SECONDS = 120.0


def rehearse(runner: Runner) -> None:
    """Start every function as often as the acts need it, on accounts that they do not use.

    So the picture shows who waits for a lock, and not who waits for a cold start. Never more than
    one new function for each account at a time: all cold at once is more than a small or busy
    machine can do before Lambda's limit for a start.
    """
    few = len(ACCOUNTS)
    _rehearse(runner, runner.deployed.guarded_machine, few, on_each=2)
    for size in range(2 * few, few * CHARGES_PER_ACCOUNT + 1, few):
        _rehearse(runner, runner.deployed.unguarded_machine, size)


def _rehearse(runner: Runner, machine: str, size: int, *, on_each: int = 1) -> None:
    names = [f"rehearsal-{size}-{number}" for number in range(size)]
    for name in names:
        runner.open_account(name)
    charges = {
        f"{name}-{turn}": _charge(name, 1, WORK_SECONDS)
        for turn in range(on_each)
        for name in names
    }
    batch = runner.start_all(machine, charges, apart_seconds=0.0)
    runner.watch(batch, _is_over, within_seconds=RUN_DEADLINE_SECONDS)


def contend(runner: Runner, *, title: str, mode: Mode, watcher: Watcher) -> Run:
    """Four executions for each of three accounts, all within a second."""
    machine = {
        Mode.BARE: runner.deployed.unguarded_machine,
        Mode.POLLING: runner.deployed.polling_machine,
        Mode.QUEUE: runner.deployed.guarded_machine,
    }[mode]
    for account_id in ACCOUNTS:
        runner.open_account(account_id)
    charges = {
        f"{account_id}-{number}": _charge(account_id, 10 * number, WORK_SECONDS)
        for number in range(1, CHARGES_PER_ACCOUNT + 1)
        for account_id in ACCOUNTS
    }
    batch = runner.start_all(machine, charges, apart_seconds=APART_SECONDS)
    executions = runner.watch(batch, _is_over, within_seconds=RUN_DEADLINE_SECONDS, watcher=watcher)
    return Run(
        title=title,
        mode=mode,
        executions=tuple(sorted(executions, key=lambda e: e.name)),
        accounts=tuple(runner.account(account_id) for account_id in ACCOUNTS),
    )


def fail_one(runner: Runner, watcher: Watcher) -> Incident:
    """A task that raises while another execution waits for its lock."""
    machine = runner.deployed.guarded_machine
    runner.open_account("dave")
    charge = {**_charge("dave", 10, FAILING_WORK_SECONDS), "fail": True}
    broken = runner.start(machine, "dave-1", charge)
    runner.watch([broken], _is_working, within_seconds=INCIDENT_DEADLINE_SECONDS)
    following = runner.start(machine, "dave-2", _charge("dave", 20, WORK_SECONDS))
    first, second = runner.watch(
        [broken, following], _is_over, within_seconds=INCIDENT_DEADLINE_SECONDS, watcher=watcher
    )
    return Incident(title="failed task", broken=first, following=second)


def stop_one(runner: Runner, watcher: Watcher) -> Incident:
    """An execution that is stopped in the middle of its work while another waits for its lock.

    It cannot release; the service's reaper hears of its end and hands the lock on. (The reaper's
    first call is that for the execution that failed before, so this one meets no cold start.)
    """
    machine = runner.deployed.guarded_machine
    runner.open_account("erin")
    broken = runner.start(machine, "erin-1", _charge("erin", 10, STOPPED_WORK_SECONDS))
    runner.watch([broken], _is_working, within_seconds=INCIDENT_DEADLINE_SECONDS)
    following = runner.start(machine, "erin-2", _charge("erin", 20, WORK_SECONDS))
    runner.watch([broken], _is_well_under_way, within_seconds=INCIDENT_DEADLINE_SECONDS)
    runner.stop(broken)
    first, second = runner.watch(
        [broken, following], _is_over, within_seconds=INCIDENT_DEADLINE_SECONDS, watcher=watcher
    )
    return Incident(title="stopped execution", broken=first, following=second)


def _charge(account_id: str, amount: int, work_seconds: float) -> Mapping[str, Any]:
    return {"account_id": account_id, "amount": amount, "work_seconds": work_seconds}


def _is_over(execution: Execution) -> bool:
    return execution.status != "RUNNING"


def _is_working(execution: Execution) -> bool:
    return bool(execution.calls_of(Role.CHARGE))


def _is_well_under_way(execution: Execution) -> bool:
    asked = execution.calls_of(Role.CHARGE)
    return bool(asked) and time.time() * 1000 - asked[0].asked_at_ms > STOPPED_AFTER_SECONDS * 1000
