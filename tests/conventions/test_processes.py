"""What tests start can be interrupted and ended, however the run was started."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.support.processes import end_session

SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"
STARTS_ONE_THAT_SLEEPS = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {SLEEPS!r}], process_group=0)
"""


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_process_that_a_test_starts_ends_on_sigint() -> None:
    """Also in `nohup make test &`, where the run itself begins with SIGINT ignored."""
    process = started(SLEEPS)
    assert first_line(process) == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT


def test_ending_a_session_ends_the_commands_in_it_and_their_pipes() -> None:
    process = started(STARTS_ONE_THAT_SLEEPS)
    assert first_line(process) == "ready\n"
    end_session(process)
    assert process.returncode == -signal.SIGKILL
