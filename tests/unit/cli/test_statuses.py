"""Exit statuses of what goes wrong before a command is started, and what is told then."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock.aws.retry import raise_if_unknown
from fairlock.cli import exit_codes
from fairlock.cli.target import Target
from testbed.localaws import LocalAws
from tests.support import LOCK, Operations, acquire, owner
from tests.support.faulty_table import ENDPOINT, client_error, down
from tests.unit.cli.conftest import PLACE, Account, Run
from tests.unit.cli.fleet import Fleet

COMMAND = "must follow --, with nothing but NAME and options before it: fairlock"
READS = "only_newest: must be left out with shared: readers hold the lock side by side (got 7)"
TIME = "must be a time: seconds such as 90, or a number with a unit such as 30s"
RATE = "must be how many in how much time, such as 10/1m or 1/1h"
VERSION = "must be a whole number of at least 0, or `now`"
OBJECT = "--data: must be a JSON object, such as"
HOLD = "max_hold: must be a number of seconds, at least 40 with a lease of 60 s"
PAIR = "rate: must be a pair of numbers, such as (10, 60): how many, at least 1 and whole, and in "
PAUSE = "limit: must be at least 1; to let no one hold the lock, use `pause` (got 0)"
EITHER = "give either --owner, or --force"

WRONG_USAGE = [
    ("nonsense", "No such command"),
    ("run", "Missing argument"),
    ("run x", f"command: {COMMAND} run NAME -- COMMAND (got 'x')"),
    ("run x ./x.sh --limit 5", f"{COMMAND} run NAME -- COMMAND (got 'x ./x.sh --limit 5')"),
    ("run x ./x.sh --all", COMMAND),
    ("run x ./x.sh -- --all", COMMAND),
    ("run -- ./x.sh a", COMMAND),
    ("pace x ./x.sh --rate 1/1h", f"{COMMAND} pace NAME -- COMMAND (got 'x ./x.sh"),
    ("run x --nonsense -- true", "No such option"),
    *(
        (f"run x --{option} {time} -- true", f"'{time}' {TIME}")
        for option, time in (
            *(("max-wait", "-1"), ("max-wait", "soon"), ("grace", "nan"), ("lease", "5w")),
            ("grace", f"1{'0' * 400}"),
        )
    ),
    ("watch --every 0.1s", "'0.1s' must be a time of at least 0.5 s"),
    ("asl --task - --lock-name x --lease 0.5s", "must be a time of at least 1 s"),
    ("asl --task - --lock-name x --lease 1.5s", "must be a whole number of seconds"),
    ("run x --table= -- true", "no lock table is named: give --table"),
    ("ls --table a --stack b", "give either --table, or --stack"),
    ("ls --stack a/b", "stack: must be the name of a stack"),
    ("run x --table a=b -- true", "for the table of a stack, give --stack (got 'a=b')"),
    ("run x --data [1] -- true", OBJECT),
    ("run x --data {x} -- true", OBJECT),
    ("run x --max-hold 11s --lease 1 -- true", "must be longer than the grace of 10 s and 1 s"),
    ("run x --max-hold 20 -- true", HOLD),
    ("run --lock=a -- true", "lock: must be left out: `fairlock run NAME -- COMMAND` holds"),
    ("run --lock a --lock b -- echo", "fairlock run A -- fairlock run B -- COMMAND"),
    ("run x --shared --only-newest 7 -- true", READS),
    *(
        (f"run x --only-newest={version} -- true", f"'{version}' {VERSION}")
        for version in ("7.5", "-1", "latest", "")
    ),
    *((f"pace x --rate={rate} -- true", RATE) for rate in ("10", "/60", "x/60", "-1/60", "1.5/60")),
    ("pace x --rate=10/ -- true", f"'' {TIME}"),
    ("pace x --rate=10/soon -- true", f"'soon' {TIME}"),
    ("pace x --rate 0/1m -- true", PAIR),
    ("pace x --rate 10/1m --burst 0 -- true", "burst: must be a whole number from 1 to 1000"),
    ("pace x -- true", "Missing option '--rate'"),
    ("limit a 0 --reason x", PAUSE),
    ("limit a 101 --reason x", "limit: must be a whole number from 1 to 100 (got 101)"),
    ("limit a 3", "Missing option '--reason'"),
    ("pause a", "Missing option '--reason'"),
    ("release a", EITHER),
    ("release a --owner=x --force", EITHER),
    ("release a --owner=short", "owner_id: must be"),
]


@pytest.mark.parametrize(("line", "told"), WRONG_USAGE)
def test_wrong_usage_is_64_and_nothing_is_asked(
    line: str, told: str, fairlock: Run, account: Account
) -> None:
    status, output, errors = fairlock(line)
    assert (status, output, account.asked) == (64, "", [])
    assert told in " ".join(errors.split())


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [
        ("nosuch", 127, "No such file"),
        ("/dev/null", 126, "Permission denied"),
        ("echo hi", 127, "; 'echo hi' is one word: give the words separately, or use sh -c"),
    ],
)
def test_a_command_that_cannot_be_started_is_told_as_shells_do(
    command: str, status: int, told: str, fairlock: Run, fleet: Fleet
) -> None:
    paced = fleet.run(f"pace not-started-{status} --rate=10/1s --", command)
    for ended, output, errors in (fairlock(f"run x -- '{command}'"), paced):
        assert (ended, output, told in errors) == (status, "", True)


@pytest.mark.parametrize(("ends", "status"), [("exit 2", 2), ("kill -9 $$", 128 + 9)])
def test_the_end_of_a_command_is_told_as_shells_do_and_is_no_wrong_usage(
    ends: str, status: int, fairlock: Run
) -> None:
    assert fairlock(f"run x -- sh -c '{ends}'") == (status, "", "")


def test_a_superseded_command_is_not_started_and_has_a_status_of_its_own(fairlock: Run) -> None:
    assert fairlock("run newest --only-newest 7 -- true").status == 0
    refused = "fairlock: lock 'newest': version 6 is superseded, 7 was granted the lock; "
    assert fairlock("run newest --only-newest 6 -- echo ran") == (
        *(exit_codes.SUPERSEDED, ""),
        f"{refused}the command was not started\n",
    )
    assert fairlock("run newest --only-newest 6 --superseded-exit-code 0 -- false").status == 0
    assert fairlock("run newest --only-newest now -- true").status == 0
    assert "newest version granted: 1" in fairlock("show newest").out


# A table that does not answer, refuses, or is not there.

UNKNOWN = "the lock table did not answer"
NETWORK = "check the network, the region and the endpoint, then repeat the command"
ASKING = (
    *("run a --max-wait 0 -- echo ran", "ls", "show a"),
    *("release a --force --yes", "empty-queue a --yes"),
)


@pytest.mark.parametrize("line", ASKING)
def test_no_answer_is_69_and_nothing_is_started(line: str, fairlock: Run, account: Account) -> None:
    account.table.will(down(EndpointConnectionError(endpoint_url=ENDPOINT)))
    status, output, errors = fairlock(line)
    assert (status, output) == (exit_codes.UNAVAILABLE, "")
    so = "; the command was not started" if "echo" in line else ""
    assert f"fairlock: {PLACE}: {UNKNOWN}" in errors
    assert errors.endswith(f"; {NETWORK}{so}\n")


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("cause", "advice"),
    [
        (client_error("ThrottlingException"), "DynamoDB throttles: repeat the command later"),
        (client_error("InternalServerError", 500), "see AWS's health page"),
        (EndpointConnectionError(endpoint_url=ENDPOINT), NETWORK),
    ],
)
def test_the_advice_fits_what_has_happened(
    cause: Exception, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(exit_codes.Ended) as ended, Target(table="locks").named_in_errors(so="; so"):
        raise_if_unknown(cause)
    told = capsys.readouterr().err
    assert ended.value.code == exit_codes.UNAVAILABLE
    assert (advice in told, NETWORK in told) == (True, advice == NETWORK)
    assert told.endswith("; so\n")


def test_an_item_that_cannot_be_read_is_78_and_its_table_is_told(
    fairlock: Run, store: Operations, account: Account
) -> None:
    store.acquire(acquire("anna"))
    spoilt = {f"holder:{owner('anna')}": {"S": "nonsense"}}
    account.table.memory.items[f"LOCK#{LOCK}", "STATE"].update(spoilt)
    status, _, errors = fairlock(f"show {LOCK}")
    assert status == exit_codes.CONFIGURATION
    assert errors.startswith(f"fairlock: {PLACE}: an item under 'LOCK#{LOCK}'")


# Which table a command is about.

ADDRESS = "http://127.0.0.1:9"
COMMANDS = (
    *(*ASKING, "pace a --rate 1/1s -- true", "release a --owner 0123456789abcdef", "doctor"),
    *("limit a 3 --reason less", "pause a --reason less", "resume a", "watch", "watch a"),
    f"show a --endpoint-url {ADDRESS}",
)


@pytest.fixture
def of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of someone who has set a region, and nothing else."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


@pytest.mark.usefixtures("of_aws")
@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({}, "eu-central-1"),
        ({"AWS_DEFAULT_REGION": ""}, "no known region"),
        # The lines of yesterday's demo, for instance: its table is not that of production.
        ({"AWS_ENDPOINT_URL": ADDRESS}, f"eu-central-1 at {ADDRESS}"),
        ({"AWS_ENDPOINT_URL_DYNAMODB": ADDRESS}, f"eu-central-1 at {ADDRESS}"),
    ],
)
def test_the_region_of_a_table_is_told_and_an_address_that_is_not_awss(
    variables: dict[str, str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Target(table="locks").place() == f"lock table 'locks' in {where}"


@pytest.mark.usefixtures("of_aws")
@pytest.mark.parametrize("line", [*COMMANDS, "create-table locks"])
def test_without_a_region_each_command_says_how_to_give_one(
    line: str, run_line: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a variable is set that others read: then it says which one counts."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    status, _, told = run_line(line)
    assert status == exit_codes.CONFIGURATION
    assert "set AWS_DEFAULT_REGION, or give --region on the command line" in told
    assert "boto3 does not read AWS_REGION, which is set" in told


@pytest.mark.parametrize("given", [None, ""])
@pytest.mark.parametrize("line", COMMANDS)
def test_without_a_table_each_command_says_where_the_name_stands(
    line: str, given: str | None, fairlock: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRLOCK_TABLE_NAME")
    if given is not None:
        monkeypatch.setenv("FAIRLOCK_TABLE_NAME", given)
    status, _, told = fairlock(line)
    assert status == exit_codes.USAGE
    assert "give --table (its value is the output LockTableName of the stack" in told
    assert told.endswith(" or --stack, or set FAIRLOCK_TABLE_NAME\n")


@pytest.fixture
def on_aws(run_line: Run, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a line on the embedded AWS."""
    for name, value in {**aws.environment, "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    return run_line


@pytest.mark.parametrize(
    ("line", "status", "told"),
    [
        ("show x --region=somewhere_", 78, "give the name of a region, such as eu-central-1; che"),
        ("show x --endpoint-url=somewhere", 78, "must be a URL, such as http://127.0.0.1:8000; c"),
        ("show x --profile=nosuch", 78, "has no such profile; check --profile or AWS_PROFILE"),
        ("show x --table=nosuch", 78, "lock table 'nosuch' in us-east-1: there is no such table"),
        ("run x --table=nosuch -- true", 78, "'nosuch' in us-east-1: there is no such table"),
        (f"show x --endpoint-url={ADDRESS}", 69, f"in us-east-1 at {ADDRESS}: {UNKNOWN}"),
        ("show x --stack=Nowhere", 78, "'/fairlock/Nowhere/LockTableName' in us-east-1: no stack"),
    ],
)
def test_a_place_where_there_is_no_table_has_a_status_and_is_told_with_a_remedy(
    line: str, status: int, told: str, on_aws: Run
) -> None:
    answer = on_aws(line)
    assert (answer.status, told in answer.err) == (status, True), answer.err


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (client_error("AccessDeniedException"), 78, "allow ssm:GetParameter on it"),
        (client_error("ParameterNotFound"), 78, "no stack of this name shares a lock service"),
        (EndpointConnectionError(endpoint_url="https://x"), 69, "did not answer"),
    ],
)
def test_a_stack_names_the_table_unless_the_parameter_store_refuses(
    error: Exception, status: int, told: str, fairlock: Run, account: Account
) -> None:
    account.parameters = {"/fairlock/Prod/LockTableName": "of-prod"}
    assert "lock table 'of-prod' in us-east-1 knows no lock" in fairlock("show x --stack Prod").err
    account.fails = {"get_parameter": error}
    answer = fairlock("show x --stack Prod")
    assert (answer.status, told in answer.err) == (status, True)


def test_a_table_is_made_once_and_used_at_once(on_aws: Run) -> None:
    assert on_aws("create-table fresh") == (0, "", "")
    again = on_aws("create-table fresh --json")
    assert (again.status, json.loads(again.out)) == (0, {"table": "fresh", "region": "us-east-1"})
    assert on_aws("run x --table fresh -- true").status == 0
    status, _, errors = on_aws(f"create-table new --endpoint-url {ADDRESS}")
    assert status == exit_codes.UNAVAILABLE
    assert f"lock table 'new' in us-east-1 at {ADDRESS}: " in errors
