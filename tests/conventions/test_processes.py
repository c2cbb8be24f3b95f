"""What tests start can be interrupted, however the run was started."""

from __future__ import annotations

import signal
import subprocess
import sys

SLEEPS = "import time; print('ready', flush=True); time.sleep(60)"


def test_a_process_that_a_test_starts_ends_on_sigint() -> None:
    """Also in `nohup make test &`, where the run itself begins with SIGINT ignored."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLEEPS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == -signal.SIGINT
