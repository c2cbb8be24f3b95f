"""Starting and ending: loopback only, nothing left over, side by side, clear failures."""

import contextlib
import importlib.metadata
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from testbed.localaws import EmulatorError, LocalAws, corrections
from testbed.localaws.workbench import Workbench

CHECKOUT = Path(__file__).resolve().parents[3]
LISTENING = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}

needs_proc = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux's /proc")


def group_members(group: int) -> list[int]:
    """Processes of a process group, zombies not counted."""
    members = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = entry.read_text().rpartition(") ")
        except OSError:  # it ended while we looked
            continue
        state, _, its_group, *_ = rest.split()
        if int(its_group) == group and state != "Z":
            members.append(int(entry.parent.name))
    return members


def listening_addresses(process: int) -> set[str]:
    """Local addresses, in hexadecimal, on which a process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            inodes.add(str(descriptor.readlink()))
        except OSError:  # closed while we looked
            continue
    addresses = set()
    for protocol in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and f"socket:[{fields[9]}]" in inodes:
                addresses.add(fields[1].split(":")[0])
    return addresses


def start_worker(aws: LocalAws) -> None:
    bench = Workbench(aws)
    function = bench.function("def handler(event, context): return event\n")
    bench.functions.invoke(FunctionName=function, Payload="1")


@needs_proc
def test_nothing_listens_outside_loopback() -> None:
    with LocalAws() as aws:
        start_worker(aws)
        aws.client("stepfunctions").list_state_machines()
        aws.client("sqs").list_queues()
        processes = group_members(aws.pid)
        addresses = [listening_addresses(process) for process in processes]
    assert len(processes) == 2  # the emulator and one Lambda worker
    assert set().union(*addresses) <= LOOPBACK
    assert any(addresses)


@needs_proc
def test_control_a_listener_on_another_address_would_be_seen() -> None:
    with socket.create_server(("127.0.0.2", 0)):
        assert not listening_addresses(os.getpid()) <= LOOPBACK


@needs_proc
def test_nothing_is_left_after_the_block() -> None:
    with LocalAws() as aws:
        start_worker(aws)
        group, home = aws.pid, aws.home
        assert home.exists()
    assert group_members(group) == []
    assert not home.exists()


@needs_proc
def test_nothing_is_left_after_an_exception() -> None:
    seen: list[tuple[int, Path]] = []

    def fail_inside() -> None:
        with LocalAws() as aws:
            start_worker(aws)
            seen.append((aws.pid, aws.home))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    [(group, home)] = seen
    assert group_members(group) == []
    assert not home.exists()


PARENT = """
import os, sys, time
from testbed.localaws import LocalAws
with LocalAws() as aws:
    forked = os.fork() if 'forks' in sys.argv else 1
    if forked:
        print(aws.pid, aws.home, forked, flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A Python process and its output, which ends after a minute at the latest."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True
    )
    at_last = threading.Timer(60, process.kill)
    at_last.start()
    try:
        assert process.stdout is not None
        with process.stdout as lines:
            yield process, lines
    finally:
        at_last.cancel()
        process.kill()
        process.wait(timeout=10)


@needs_proc
@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "alone"),
        (signal.SIGTERM, "alone"),
        (signal.SIGINT, "alone"),
        (signal.SIGKILL, "forks"),
    ],
)
def test_nothing_is_left_when_the_parent_is_gone(number: signal.Signals, how: str) -> None:
    """Not even if a process that the parent forked lives on, and with it the parent's pipes."""
    with started("-c", PARENT, how) as (parent, lines):
        group, home, forked = lines.readline().split()
        parent.send_signal(number)
        parent.wait(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (group_members(int(group)) or Path(home).exists()):
            time.sleep(0.02)
        if how == "forks":
            os.kill(int(forked), signal.SIGKILL)
    assert group_members(int(group)) == []
    assert not Path(home).exists()


def test_two_instances_do_not_see_each_other(corrected: Workbench) -> None:
    with LocalAws() as aws:
        other = Workbench(aws)
        here, there = corrected.table(), other.table()
        assert there in aws.client("dynamodb").list_tables()["TableNames"]
        assert here not in aws.client("dynamodb").list_tables()["TableNames"]
        assert there not in corrected.tables.list_tables()["TableNames"]


def test_the_users_credentials_are_not_used(
    monkeypatch: pytest.MonkeyPatch, corrected: Workbench
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREALREALREALREAL")
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:8080")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:8080")
    identity = corrected.aws.client("sts").get_caller_identity()
    assert identity["Account"] == "000000000000"
    assert corrected.aws.environment["AWS_ACCESS_KEY_ID"] == corrected.aws.access_key
    assert corrected.aws.access_key.startswith("LOCALAWS")


def test_another_version_of_the_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.5.34")
    with pytest.raises(EmulatorError, match=r"ministack 1\.5\.33 is needed, found: 1\.5\.34"):
        LocalAws().__enter__()


def test_an_emulator_that_does_not_come_up_says_why() -> None:
    with pytest.raises(EmulatorError, match="could not convert string to float: 'soon'"):
        LocalAws(settings={"LOCALAWS_TTL_SECONDS": "soon"}).__enter__()


def test_an_unknown_correction_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no such correction: everything"):
        LocalAws(without=("everything",))


def test_every_correction_says_what_aws_does() -> None:
    folder = Path(corrections.__file__).parent
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    assert modules == set(corrections.NAMES)
    for name in corrections.NAMES:
        text = (folder / f"{name}.py").read_text()
        assert all(f"\n{part}" in text for part in ("AWS", "Emulator: ", "This: ")), name


def test_the_readme_lists_every_correction() -> None:
    text = (Path(corrections.__file__).parents[1] / "README.md").read_text()
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == corrections.NAMES


def test_used_outside_a_block_it_says_so() -> None:
    with pytest.raises(EmulatorError, match="use it in a `with` block"):
        _ = LocalAws().endpoint_url


def test_by_hand_it_prints_what_to_export_and_ends_on_ctrl_c() -> None:
    with started("-m", "testbed.localaws") as (running, lines):
        first, second = lines.readline(), lines.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 0
    assert first.startswith("# Embedded AWS at http://127.0.0.1:")
    assert second.startswith("export AWS_ENDPOINT_URL=http://127.0.0.1:")
