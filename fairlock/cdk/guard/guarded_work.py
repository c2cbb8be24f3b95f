"""The states from the grant to the end of a guard: the work, and the release after it.

Without keep_alive:

    Work ──▶ Release

With it:

    ┌ Work ──────────────────────────────────┐
    │  the work ──▶ Release, ends Heartbeat  │
    │  Heartbeat ──▶ Heartbeat ──▶ …         │
    └────────────────────────────────────────┘

In either form an error of the work leads to a release of its own.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk.guard.states import RESULT_IN_CAUSE, GuardStates
from fairlock.cdk.repeats import ANY_ERROR

_WORK: Final = "Work"


def work_then_release(
    task: sfn.IChainable, states: GuardStates, *, on_error: sfn.IChainable
) -> sfn.Chain:
    """The work as one state whose every error goes to `on_error`, as {Error, Cause}."""
    work = task if is_bare_task(task) else states.branches(_WORK, task)
    _catch_all(work, on_error)
    not_released = states.not_released()
    release = states.calls.release("Release", then=not_released)
    work.next(release)
    return sfn.Chain.custom(work, [release, not_released], not_released)


def work_beside_heartbeat(
    task: sfn.IChainable, states: GuardStates, *, interval_seconds: int, on_error: sfn.IChainable
) -> sfn.Chain:
    """The work with a heartbeat beside it: the release ends the heartbeat, a loss ends the work.

    A task that is more than a bare one gets a branch of its own: a Succeed in it would end the
    branch before the release, and leave the heartbeat running.
    """
    release = states.calls.release(
        "Release", then=states.not_released_beside_a_heartbeat(), keep_alive=True
    )
    body = task if is_bare_task(task) else states.branches("Body", task)
    body.next(release)
    heartbeat = states.calls.heartbeat(
        interval_seconds=interval_seconds,
        on_end=states.heartbeat_ended(),
        on_loss=states.rethrow("Not kept alive"),
    )
    work = states.branches(_WORK, body, heartbeat)
    not_released = states.not_released()
    work.add_catch(not_released, errors=[states.not_released_error], outputs=RESULT_IN_CAUSE)
    _catch_all(work, on_error)
    return sfn.Chain.custom(work, [work, not_released], not_released)


def _catch_all(work: sfn.TaskStateBase | sfn.Parallel, on_error: sfn.IChainable) -> None:
    work.add_catch(on_error, errors=["States.DataLimitExceeded"])  # States.ALL does not match it
    work.add_catch(on_error, errors=[ANY_ERROR])


def is_bare_task(task: sfn.IChainable) -> TypeGuard[sfn.TaskStateBase]:
    """Whether the task is a state without transitions, so that the guard may add its own."""
    if not isinstance(task, sfn.TaskStateBase):
        return False
    rendered = task.to_state_json()
    return "Next" not in rendered and "Catch" not in rendered
