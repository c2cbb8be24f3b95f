"""The command `fairlock`: holds a lock while a program runs, shows and frees locks, makes tables.

Needs the extra `cli`.
"""

from __future__ import annotations

import sys

from fairlock.text import extra_missing


def main() -> None:
    """Runs the command line and ends with its exit status, see `fairlock.cli.exit_codes`."""
    try:
        from fairlock.cli.app import run_app  # noqa: PLC0415 - an optional part
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        sys.exit(extra_missing("fairlock: the command line needs typer", extra="cli"))
    run_app()
