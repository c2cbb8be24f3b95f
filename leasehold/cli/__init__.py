"""The command `leasehold`: `run` holds a lock around any command; `show`, `create-table`.

    _app       options, errors to exit statuses
    _running   the lock and the command, side by side
    _command   one process group
    _terminal  who may read from it
    _bell      wakes the main thread: signals, the command's end, the lock's loss

Needs the extra: `pip install 'leasehold[cli]'`.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point. Ends with the exit status, see `leasehold.cli.exit_codes`."""
    try:
        from leasehold.cli.app import run_app  # noqa: PLC0415 - an optional part
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        sys.exit("leasehold: the command line needs typer: pip install 'leasehold[cli]'")
    run_app()
