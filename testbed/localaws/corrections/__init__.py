"""What is wrong in ministack 1.5.33, put right one concept a module.

Each module says what AWS does, what the emulator does and what it changes, and has an `apply()`
that replaces functions of the emulator; no file of the emulator is touched. They are applied in
the order of NAMES, in the emulator's own process, before it serves anything.
"""

import importlib
from collections.abc import Iterable

NAMES: tuple[str, ...] = (
    "lambda_task",
    "start_delay",
    "history",
    "redrive",
    "stop_execution",
    "execution_timeout",
    "task_timeouts",
    "retry_delays",
    "callbacks",
    "jsonata_states",
    "branch_failure",
    "map_runs",
    "nested_executions",
    "missing_paths",
    "variables",
    "error_names",
    "express",
    "machine_keys",
    "lambda_errors",
    "lambda_logs",
    "dynamodb_tasks",
    "dynamodb_ttl",
    "new_table_backups",
    "event_targets",
    "undelivered_events",
    "queue_polling",
    "batch_failures",
    "table_settings",
    "function_settings",
    "fresh_names",
    "alarm_metrics",
    "saved_queries",
    "few_environments",
    "durable_operations",
    "durable_history",
    "durable_invocations",
    "durable_events",
    "durable_refusals",
    "leading_keys",
    "signature_age",
    "owner_only",
)


def require_known(names: Iterable[str]) -> None:
    """Refuse the name of a correction that does not exist."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        raise ValueError(f"no such correction: {', '.join(unknown)} (known: {', '.join(NAMES)})")


def apply(*, without: Iterable[str] = ()) -> None:
    """Apply all corrections but those named in `without`."""
    left_out = set(without)
    require_known(left_out)
    for name in NAMES:
        if name not in left_out:
            importlib.import_module(f"{__name__}.{name}").apply()
