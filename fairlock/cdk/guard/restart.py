"""An acquisition that was released meanwhile begins anew: another owner, in the same wait.

Somebody released it by hand, or the reaper did, before its execution was redriven. The pauses
before each new beginning double, so a wait has few of them, whatever happens to it.
"""

from __future__ import annotations

from fairlock.cdk.workflow_variable import WorkflowVariable


def pause_before_restart(variable: WorkflowVariable) -> str:
    """JSONata: 1, 2, 4 … seconds."""
    return f"$power(2, {variable.field('restarts')})"


def restarted(variable: WorkflowVariable) -> str:
    """JSONata: the guard's variable for the next owner."""
    restarts = f"{variable.field('restarts')} + 1"
    pause = pause_before_restart(variable)
    return variable.merged(f"'owner_id': $uuid(), 'restarts': {restarts}, 'pause_seconds': {pause}")
