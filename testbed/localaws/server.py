"""The emulator's own process: `python -m testbed.localaws.server`, started by EmulatorProcess.

Everything it needs comes through the environment, because ministack reads its settings at import.
"""

import asyncio
import os
import resource
import select
import shutil
import signal
import sys
import threading

from testbed.localaws import corrections

_PARENT_CHECK_SECONDS = 1.0


def main() -> None:
    """Correct the emulator, then serve on the inherited socket until told to stop."""
    _end_with_parent(int(os.environ["LOCALAWS_PARENT"]), os.environ["LOCALAWS_HOME"])
    _raise_file_limit()
    corrections.apply(without=tuple(filter(None, os.environ["LOCALAWS_WITHOUT"].split(","))))
    asyncio.run(_serve(int(os.environ["LOCALAWS_LISTENER"])))


async def _serve(listener: int) -> None:
    # Imported late: ministack must not be loaded before the corrections are chosen and applied.
    import hypercorn.asyncio  # noqa: PLC0415
    import hypercorn.config  # noqa: PLC0415
    import ministack.app  # noqa: PLC0415

    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 0.2
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await hypercorn.asyncio.serve(ministack.app.app, config, shutdown_trigger=stop.wait)
    # Threads that wait for Lambda answers or queues would else hold the process open.
    os._exit(0)


def _end_with_parent(parent: int, home: str) -> None:
    """End the whole process group, and remove its files, once the parent is gone.

    Its end of stdin closes then, unless a process that it forked has inherited that.
    """

    def watch() -> None:
        while os.getppid() == parent:
            closed, _, _ = select.select([sys.stdin], [], [], _PARENT_CHECK_SECONDS)
            if closed:
                break
        shutil.rmtree(home, ignore_errors=True)
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
