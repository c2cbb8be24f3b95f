"""A slice of `make fuzz`, and planted defects, each of which it must find.

`FUZZ=100000 pytest tests/fuzz` makes so many requests, and a quarter as many calls of clients.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlock import LockClient
from fairlock.cli import app, exit_codes
from fairlock.cli.exit_codes import ENDINGS
from fairlock.cli.target import Target
from fairlock.client import arguments
from fairlock.client.base_lock import BaseLock
from fairlock.protocol.model import AcquireRequest
from fairlock.wire import requests
from lambdas import acquire, runtime
from tests.fuzz.clients import fuzz_clients
from tests.fuzz.findings import (
    IN_ERRORS,
    LOGGED,
    SECRETS,
    SHOWN,
    UNTYPED,
    WRITES,
    Exceptions,
    Findings,
    leaks,
)
from tests.fuzz.handlers import fuzz_handlers
from tests.support.faulty_table import ENDPOINT, refusal
from tests.support.weakened import Patch, patched

pytestmark = pytest.mark.cached

REQUESTS = int(os.environ.get("FUZZ", "2500"))
CALLS = REQUESTS // 4
SEED = 20_261_122
FEW = 400
"""As many as a planted defect may take to be found."""


Fuzz = Callable[..., Findings]
WAYS: Final = {
    fuzz_handlers: {
        *("acquired True", "acquired HELD", "acquired QUEUED", "acquired SUPERSEDED", "limited"),
        *("renewed True", "released True", "released NOT_HELD", "reserved True"),
        *("reserved TOO_LATE", "reap batches", "InvalidRequest", "LockStoreUnavailable"),
        *("LockStoreMisconfigured", "LockLost"),
    },
    fuzz_clients: {"returned", "InvalidRequest", "LockLost", "LockWaitTimeout"},
}
"""How calls end, among others."""


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("fuzz", "calls"), [(fuzz_handlers, REQUESTS), (fuzz_clients, CALLS)])
def test_calls_raise_typed_errors_write_nothing_on_refusal_and_show_no_secret(
    fuzz: Fuzz, calls: int, record_property: Callable[[str, object], None]
) -> None:
    findings = fuzz(calls, seed=SEED)
    record_property("figures", f"{fuzz.__name__}: {findings.figures()}")
    assert findings.calls == calls
    assert (findings.defects, findings.examples) == ({}, [])
    assert set(findings.outcomes) >= WAYS[fuzz]


def hashed(owner_id: str) -> str:
    return hashlib.sha256(owner_id.encode()).hexdigest()[:12]


def logging_a(secret: Callable[[AcquireRequest], object]) -> Patch:
    def observe(request: AcquireRequest, _answer: object, **_more: object) -> None:
        runtime.logger.debug("seen", extra={"of": secret(request)})

    return acquire, "observe_acquire", observe


def parse_and_write(event: Any) -> AcquireRequest:  # noqa: ANN401 - whatever JSON is
    item = {"pk": {"S": "x"}, "sk": {"S": "x"}}
    runtime._client("dynamodb").put_item(TableName="locks", Item=item)  # noqa: SLF001 - as a handler would
    return requests.parse_acquire(event)


NO_ANSWER: Final[dict[str, Any]] = {}
ANOTHERS: Final = {"acquired": False, "holders": SECRETS[:1]}
DEFECTS: Final[dict[str, tuple[Patch, str]]] = {
    "a handler raises a KeyError": ((acquire, "acquire_answer", lambda _: NO_ANSWER["x"]), UNTYPED),
    "a handler logs the owner_id": (logging_a(lambda asked: asked.owner_id), LOGGED),
    "a handler logs the task token": (logging_a(lambda asked: asked.task_token), LOGGED),
    "a handler logs a hash": (logging_a(lambda asked: hashed(asked.owner_id)), LOGGED),
    "a handler writes before it refuses": ((acquire, "parse_acquire", parse_and_write), WRITES),
    "an answer shows another's owner_id": ((acquire, "acquire_answer", lambda _: ANOTHERS), SHOWN),
    "a message shows text": ((requests, "_fault", lambda *of: ValueError(f"{of}")), IN_ERRORS),
    "a message has no type": ((requests, "_fault", lambda *of: ValueError(f"{of}")), UNTYPED),
}
DEFECTS_OF_CLIENTS: Final[dict[str, tuple[Patch, str]]] = {
    "max_wait is not checked": ((arguments, "require_max_wait", lambda _value: None), UNTYPED),
    "a lock shows its owner_id": ((BaseLock, "__repr__", lambda lock: lock.owner_id), SHOWN),
}


@pytest.mark.parametrize("name", [*DEFECTS, *DEFECTS_OF_CLIENTS])
def test_a_planted_defect_is_found(name: str) -> None:
    planted, kind = {**DEFECTS, **DEFECTS_OF_CLIENTS}[name]
    with patched([planted]):
        found = (fuzz_handlers if name in DEFECTS else fuzz_clients)(FEW, seed=SEED)
    assert kind in found.defects


def test_a_secret_a_part_of_it_and_its_hash_are_recognized() -> None:
    for shown in (SECRETS[0], SECRETS[7][:9], SECRETS[3].upper(), hashed(SECRETS[5])):
        assert leaks(f"… {shown} …")
    assert not leaks("… an owner whose lease is over …")


# Whatever is typed, and wherever: the command ends with a status of its page, and no traceback.

WORDS: Final = [
    *("", " ", "-", "--", "x", "a\nb", "\udcff", "é", "0", "-1", "1e400", "nan", "inf", "30s"),
    *("-5s", "1d", "10/1m", "1/0", "0/1", "9" * 20, "now", "{}", "[", '{"a":NaN}', "null", "[red]"),
    *("/nonexistent", "/etc", "arn:aws:dynamodb:us-east-1:1:table/x", "x" * 3000, "$.a", "{% %}"),
]
OPTIONS: Final = [
    *("--lease", "--max-wait", "--max-hold", "--limit", "--owner-name", "--data", "--only-newest"),
    *("--grace", "--taken-exit-code", "--quiet", "--shared", "--rate", "--burst", "--prefix"),
    *("--waiting", "--free", "--json", "--every", "--owner", "--force", "--token", "--reason"),
    "-y",
    *("--task", "--lock-name", "--keep-alive", "--express", "--name", "--partition", "--recovery"),
    *("--table", "--stack", "--profile", "--region", "--endpoint-url", "--nonsense"),
]
COMMANDS: Final = [name for name in ENDINGS if name not in {"fairlock", "asl", "watch"}]
"""asl starts Node, which takes a second, and watch goes on until Ctrl-C: they have other tests."""
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
REGION: Final = {"AWS_DEFAULT_REGION": "us-east-1"}
TABLE: Final = {"FAIRLOCK_TABLE_NAME": "locks"}
SURROUNDINGS: Final[dict[str, dict[str, str]]] = {
    "nothing is set": {},
    "no credentials": {**REGION, **TABLE},
    "no table": {**CREDENTIALS, **REGION},
    "no such profile": {**REGION, **TABLE, "AWS_PROFILE": "unknown"},
    "permission denied": {**CREDENTIALS, **REGION, **TABLE},
}
STATUSES: Final = {0, 1, *(code for code in vars(exit_codes).values() if isinstance(code, int))}


class Denied:
    """A client of AWS whose every request is refused."""

    exceptions = Exceptions
    meta = SimpleNamespace(region_name="us-east-1", endpoint_url=ENDPOINT)

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - any request
        return Mock(side_effect=refusal("AccessDeniedException"))

    def close(self) -> None:
        """Nothing is open."""


def denied_locks(target: Target, **options: Any) -> LockClient:  # noqa: ANN401 - as of LockClient
    denied: Any = Denied()
    return LockClient(target.table, client=denied, stepfunctions=denied, **options)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command is started, no request leaves the process, no real configuration is read."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "FAIRLOCK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(app, "become", lambda _command: 0)
    monkeypatch.setattr(app, "run", lambda _job: 0)


def ended(
    words: list[str], variables: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        if CREDENTIALS.items() <= variables.items():
            patch.setattr(Target, "client", lambda *_arguments, **_named: Denied())
            patch.setattr(Target, "locks", denied_locks)
        patch.setattr(sys, "argv", ["fairlock", *words])
        patch.setattr(sys, "stdin", io.StringIO(""))
        # As Python makes it: a word need not be UTF-8, and the message shows it.
        cast("io.TextIOWrapper", sys.stderr).reconfigure(errors="backslashreplace")
        with pytest.raises(SystemExit) as end:
            app.run_app()
    output = capsys.readouterr()
    return end.value.code, output.out + output.err


def words_of(
    command: str, names: list[str], options: list[tuple[str, str]], *, runs: bool
) -> list[str]:
    given = [word for option in options for word in option]
    return [command, *names, *given, *(["--", "true"] if runs else [])]


LINES = st.builds(
    words_of,
    st.sampled_from(COMMANDS),
    st.lists(st.sampled_from(["orders", *WORDS]), max_size=2),
    st.lists(st.tuples(st.sampled_from(OPTIONS), st.sampled_from(WORDS)), max_size=3),
    runs=st.booleans(),
)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("surroundings", SURROUNDINGS)
@settings(
    max_examples=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(line=LINES)
def test_a_command_ends_with_a_status_and_a_message(
    capsys: pytest.CaptureFixture[str], surroundings: str, line: list[str]
) -> None:
    code, said = ended(line, SURROUNDINGS[surroundings], capsys)
    assert code in STATUSES, said
    assert "Traceback" not in said
    if code != 0:
        assert said.strip()
