"""Which table a command is about, as people are told: what they need to find the mistake."""

from __future__ import annotations

import signal
import sys

import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock import LockClient
from fairlock.aws.retry import raise_if_unknown
from fairlock.cli import exit_codes, main
from fairlock.cli.exit_codes import CONFIGURATION, UNAVAILABLE, Ended
from fairlock.cli.target import Target
from fairlock.errors import LockItemMalformed
from tests.support.faulty_table import client_error
from tests.unit.cli.fleet import Fleet, Process, outcome, state_of, until, until_renewed
from tests.unit.cli.test_loss import POLITE, lose

ADDRESS = "http://127.0.0.1:4711"
LEFT_OVER = {
    "AWS_ENDPOINT_URL": ADDRESS,
    "AWS_ENDPOINT_URL_DYNAMODB": ADDRESS,
}


@pytest.fixture
def of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LEFT_OVER:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@pytest.mark.usefixtures("of_aws")
def test_aws_itself_is_told_by_its_region() -> None:
    """The control of the next one."""
    assert Target(table="locks").place() == "lock table 'locks' in eu-central-1"


@pytest.mark.usefixtures("of_aws")
@pytest.mark.parametrize("name", LEFT_OVER)
def test_an_address_that_the_environment_names_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines of yesterday's demo, for instance: its table is not that of production."""
    monkeypatch.setenv(name, ADDRESS)
    assert Target(table="locks").place() == f"lock table 'locks' in eu-central-1 at {ADDRESS}"


@pytest.mark.usefixtures("of_aws")
def test_without_a_region_the_place_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert Target(table="locks").place() == "lock table 'locks' in no known region"


COMMANDS = (
    "run a -- true",
    "ls",
    "show a",
    "watch",
    "watch a",
    "release a --owner 7d3f2c1e-5b0a-4c8e",
    "release a --force --yes --reason r",
    "doctor",
    "show a --endpoint-url http://127.0.0.1:9",
)


@pytest.mark.usefixtures("of_aws")
@pytest.mark.parametrize(
    "line", [*(f"{line} --table locks" for line in COMMANDS), "create-table locks"]
)
def test_without_a_region_each_command_says_how_to_give_one(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even if a variable is set that others read: then it says which one counts."""
    words = line.replace(" -- true --table locks", " --table locks -- true").split()
    monkeypatch.setattr(sys, "argv", ["fairlock", *words])
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == CONFIGURATION
    told = capsys.readouterr().err
    assert "set AWS_DEFAULT_REGION, or give --region on the command line" in told
    assert "boto3 does not read AWS_REGION, which is set" in told


@pytest.mark.usefixtures("of_aws")
@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (client_error("ThrottlingException"), "DynamoDB throttles: repeat the command later"),
        (client_error("InternalServerError", 500), "see AWS's health page"),
        (EndpointConnectionError(endpoint_url=ADDRESS), "check the network, the region and"),
    ],
)
def test_the_advice_fits_what_has_happened(
    cause: Exception, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended) as ended, Target(table="locks").named_in_errors(so="; not started"):
        raise_if_unknown(cause)
    assert ended.value.code == UNAVAILABLE
    told = capsys.readouterr().err
    assert told.startswith("fairlock: lock table 'locks' in eu-central-1: ")
    assert advice in told
    assert told.endswith("; not started\n")
    assert told.count("check the network") == advice.startswith("check the network")


@pytest.mark.usefixtures("of_aws")
def test_the_table_of_a_spoilt_item_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as ended, Target(table="locks").named_in_errors():
        raise LockItemMalformed("LOCK#spoilt")
    assert ended.value.code == CONFIGURATION
    told = capsys.readouterr().err
    assert told.startswith("fairlock: lock table 'locks' in eu-central-1: an item under 'LOCK#sp")


# Commands whose streams are closed or full, that another one has stopped, or end with Ctrl-C.

FULL = {2: "/dev/full"}

STOPS_ITSELF = "echo $$ > pid; kill -STOP $$; touch went-on; exit 3"
TELLS = """
import os, sys
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
left = [str(number) for number in range(3) if is_open(number)]
open("told", "w").write("".join(left))
sys.exit(5)
"""


def closed(*numbers: int) -> dict[int, str | None]:
    return dict.fromkeys(numbers)


@pytest.mark.parametrize(
    "numbers", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2), "by a shell"], ids=str
)
def test_streams_that_are_closed_stay_closed_for_the_command(
    fleet: Fleet, numbers: tuple[int, ...] | str
) -> None:
    """What we open for ourselves takes their numbers, and is not handed down."""
    words = ("run", "closed", "--", sys.executable, "-S", "-c", TELLS)
    if isinstance(numbers, str):
        shell = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "fairlock")
        process: Process = fleet.popen([*shell, *words])
        left = ""
    else:
        process = fleet.start(*words, streams=closed(*numbers))
        left = "".join(str(number) for number in range(3) if number not in numbers)
    assert outcome(process) == (5, "", "")
    assert fleet.file("told").read_text() == left
    assert fleet.state("closed").held == 0


@pytest.mark.parametrize("numbers", [(1,), (2,), (0, 1, 2)], ids=str)
def test_a_pace_starts_its_command_although_streams_are_closed(
    fleet: Fleet, numbers: tuple[int, ...]
) -> None:
    line = ("pace", f"closed {numbers}", "--rate", "10/1m", "--", "sh", "-c", "touch ran; exit 5")
    assert outcome(fleet.start(*line, streams=closed(*numbers))) == (5, "", "")
    assert (fleet.home / "ran").exists()


@pytest.mark.parametrize(
    ("options", "status"),
    [(("--force", "--yes"), exit_codes.UNKNOWN_LOCK), (("--owner", "-"), exit_codes.USAGE)],
)
def test_a_release_says_what_is_wrong_although_its_input_is_closed(
    fleet: Fleet, options: tuple[str, ...], status: int
) -> None:
    told, _, errors = outcome(fleet.start("release", "closed", *options, streams=closed(0)))
    assert (told, errors.count("\n")) == (status, 1)


def test_a_name_that_the_output_cannot_write_is_shown_by_its_escapes(
    fleet: Fleet, locks: LockClient
) -> None:
    line = (sys.executable, "-m", "fairlock", "ls", "--prefix", "caf\u00e9")
    with locks.hold("caf\u00e9"):
        process = fleet.popen([*line], PYTHONIOENCODING="ascii")
        status, output, errors = outcome(process)
    assert (status, output.partition("\t")[0], errors) == (0, "caf\\xe9", "")


def test_a_command_whose_lock_is_lost_may_end_by_itself_although_no_line_can_be_written(
    fleet: Fleet,
) -> None:
    process = fleet.start(*("run", "full", "--lease", "2", "--", "sh", "-c", POLITE), streams=FULL)
    fleet.file("ready")
    lose(fleet, "full")
    assert outcome(process)[0] == exit_codes.LOST
    assert (fleet.home / "stopped").exists()


def test_a_command_keeps_its_status_although_no_line_can_be_written_of_its_lock(
    fleet: Fleet,
) -> None:
    """The release finds that the lock is lost."""
    waits = "touch ready; until [ -e gone ]; do sleep 0.02; done; exit 3"
    process = fleet.start("run", "full", "--", "sh", "-c", waits, streams=FULL)
    fleet.file("ready")
    lose(fleet, "full")
    (fleet.home / "gone").touch()
    assert outcome(process)[0] == 3


def test_a_lock_that_is_taken_has_its_status_although_no_line_can_be_written(
    fleet: Fleet, locks: LockClient
) -> None:
    """The control writes to the same device, and is told so."""
    line = ("run", "full", "--max-wait", "0", "--", "true")
    with locks.hold("full"):
        assert outcome(fleet.start(*line, streams=FULL))[0] == exit_codes.TAKEN
    control = fleet.popen(["sh", "-c", "echo told 2>/dev/full >&2"])
    assert outcome(control)[0] != 0


READERS = pytest.mark.parametrize("reader", ["/dev/full", "gone"])


def told_to(fleet: Fleet, reader: str, *line: str) -> tuple[int, str, str]:
    """What becomes of a command whose output no one can read."""
    if reader != "gone":
        return outcome(fleet.start(*line, streams={1: reader}))
    # The shell opens the pipe for both, and goes on when its reader has gone.
    gone = 'mkfifo "$0" && { sleep 0.01 <"$0" & } && exec 3>"$0" && wait && exec "$@" >&3 3>&-'
    pipe = str(fleet.home / "pipe")
    shell = ("sh", "-c", gone, pipe, sys.executable, "-m", "fairlock", *line)
    return outcome(fleet.popen([*shell]))


@READERS
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_release_whose_output_cannot_be_written_is_not_told_as_declined(
    fleet: Fleet, locks: LockClient, reader: str, options: tuple[str, ...]
) -> None:
    """The status 1 would say that nothing was released."""
    locks.acquire("told")
    status, _, errors = told_to(fleet, reader, "release", "told", "--force", "--yes", *options)
    assert (status, fleet.state("told").held) == (exit_codes.NOT_TOLD, 0)
    assert "Traceback" not in errors


@READERS
@pytest.mark.parametrize("line", ["ls", "show shown", "doctor"])
def test_an_output_that_cannot_be_written_has_a_status_of_its_own(
    fleet: Fleet, locks: LockClient, reader: str, line: str
) -> None:
    with locks.hold("shown"):
        status, _, errors = told_to(fleet, reader, *line.split())
    assert status == exit_codes.NOT_TOLD
    assert ("No space left" in errors) == (reader != "gone")
    assert "Traceback" not in errors


def test_a_stopped_command_can_be_ended(fleet: Fleet) -> None:
    """It notices no signal before it goes on; before, no one makes it go on: the control."""
    process = fleet.start("run", "stopped", "--lease", "2", "--", "sh", "-c", STOPS_ITSELF)
    fleet.file("pid")
    until(lambda: state_of(fleet.home / "pid") == "T")
    until_renewed(fleet, "stopped")
    assert state_of(fleet.home / "pid") == "T"
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[0] == 128 + signal.SIGTERM
    assert not (fleet.home / "went-on").exists()


def test_a_watch_in_a_pipe_tells_each_change_at_once_and_ends_with_ctrl_c(
    fleet: Fleet, locks: LockClient
) -> None:
    lock = locks.acquire("watched")
    process = fleet.start("watch", "watched", "--every", "0.5")
    assert process.stdout is not None
    assert "held by 1 of 1" in process.stdout.readline()
    lock.release()
    assert "free" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert outcome(process) == (0, "", "")
