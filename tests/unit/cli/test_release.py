"""`fairlock release`: the grant that was shown, after a yes; what is told, and the statuses."""

from __future__ import annotations

import getpass
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock import HolderChanged, InvalidRequest, LockClient
from fairlock.cli import exit_codes, operator_commands
from fairlock.cli.lines import details, lock_table, one_line
from fairlock.cli.listing import is_wanted
from fairlock.cli.operator_commands import (
    change_ceiling,
    empty_queue,
    force_release,
    release_own,
)
from fairlock.cli.target import Target, caller
from tests.support import FakeClock, Operations, acquire, owner, release
from tests.unit.cli.conftest import client_of, shown_lines, terminal
from tests.unit.client.doubles import Table

Output = pytest.CaptureFixture[str]


@pytest.fixture
def locks(table: Table, clock: FakeClock) -> LockClient:
    return client_of(table, clock)


def forced(locks: LockClient, **changes: Any) -> int:  # noqa: ANN401 - of the command
    options: dict[str, Any] = {
        "fencing_token": None,
        "reason": "hangs",
        "yes": False,
        "ask": lambda _question: True,
        "requested_by": lambda: "olga",
        **changes,
    }
    return force_release(locks, "lock table 'locks'", options.pop("name", "a"), **options)


@pytest.mark.parametrize("data", ['{"a":' * 1018, "[1]"])
def test_data_that_cannot_be_read_keeps_no_one_from_releasing(
    locks: LockClient, store: Operations, table: Table, capsys: Output, data: str
) -> None:
    store.acquire(acquire("anna", lock_name="a", data=data))
    assert forced(locks) == 0
    assert f"data: {data}" in capsys.readouterr().err
    assert table.state("a").holders == ()


def test_if_data_had_to_be_read_the_holder_could_not_be_released(
    locks: LockClient, store: Operations, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.protocol.description.read_data", json.loads)
    store.acquire(acquire("anna", lock_name="a", data='{"a":' * 1018))
    with pytest.raises((ValueError, RecursionError)):
        forced(locks)
    assert len(table.state("a").holders) == 1


def test_the_holder_is_shown_then_asked_about_then_released(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    store.acquire(acquire("anna", lock_name="a", data='{"job":7}'))
    store.acquire(acquire("ben", lock_name="a", waits=True))
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(capsys.readouterr().err + question)
        return True

    assert forced(locks, ask=ask) == 0
    [told] = asked
    for part in ("anna", "fencing token", '{"job":7}', "not stopped", "oldest waiter gets"):
        assert part in told
    assert owner("anna") not in told
    assert capsys.readouterr().out == "a: released by force; held by 1 of 1\n"
    assert [holder.owner_name for holder in table.state("a").holders] == ["ben"]
    last = table.state("a").last_forced_release
    assert last is not None
    assert (last.requested_by, last.reason) == ("olga", "hangs")


def test_a_no_changes_nothing_and_has_a_status(
    locks: LockClient, store: Operations, table: Table
) -> None:
    store.acquire(acquire("anna", lock_name="a"))
    before = dict(table.memory.items)
    assert forced(locks, ask=lambda _question: False) == exit_codes.DECLINED == 1
    assert table.memory.items == before


def test_without_a_terminal_yes_must_be_given(locks: LockClient, store: Operations) -> None:
    store.acquire(acquire("anna", lock_name="a"))
    with pytest.raises(SystemExit) as ended:
        forced(locks, ask=None)
    assert ended.value.code == exit_codes.USAGE
    assert forced(locks, ask=None, yes=True, reason=None) == 0


def test_a_holder_that_comes_while_someone_thinks_is_not_released(
    locks: LockClient, store: Operations, table: Table
) -> None:
    store.acquire(acquire("anna", lock_name="a"))

    def think(_question: str) -> bool:
        store.release(release("anna", lock_name="a"))
        store.acquire(acquire("ben", lock_name="a"))
        return True

    with pytest.raises(HolderChanged), exit_codes_of(73):
        forced(locks, ask=think)
    assert [holder.owner_name for holder in table.state("a").holders] == ["ben"]


class exit_codes_of:  # noqa: N801 - reads as a function
    """Within, the error has this status; it goes on."""

    def __init__(self, status: int) -> None:
        self.status = status

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        assert error is not None
        with pytest.raises(SystemExit) as ended, exit_codes.statuses():
            raise error
        assert ended.value.code == self.status


def test_of_several_holders_one_must_be_named(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    for name in ("anna", "ben"):
        store.acquire(acquire(name, lock_name="a", limit=2))
    with pytest.raises(SystemExit) as ended:
        forced(locks, yes=True)
    assert ended.value.code == exit_codes.USAGE
    tokens = [holder.fencing_token for holder in table.state("a").holders]
    told = capsys.readouterr().err
    assert all(f"--token {token}: " in told for token in tokens)
    assert forced(locks, yes=True, fencing_token=7) == exit_codes.HOLDER_CHANGED
    assert forced(locks, yes=True, fencing_token=tokens[1]) == 0
    assert [holder.owner_name for holder in table.state("a").holders] == ["anna"]


def test_what_no_one_holds_or_knows_is_66(locks: LockClient, store: Operations) -> None:
    assert forced(locks, yes=True) == 66
    store.acquire(acquire("anna", lock_name="a"))
    store.release(release("anna", lock_name="a"))
    assert forced(locks, yes=True) == 66


def test_the_release_stands_though_no_one_can_read_what_came_of_it(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    store.acquire(acquire("anna", lock_name="a"))

    def fail_after_the_write(name: str, _arguments: object) -> None:
        if name == "query" and "update_item" in table.log[-1:]:
            table.outage = EndpointConnectionError(endpoint_url="x")

    table.before = fail_after_the_write
    assert forced(locks, yes=True) == 0
    assert "a: released by force" in capsys.readouterr().out


class _Clients:
    """STS, whatever the options."""

    def get_caller_identity(self) -> dict[str, str]:
        return {"Arn": "arn:aws:sts::123456789012:assumed-role/Admin/olga"}


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(Target, "client", lambda *_arguments, **_settings: _Clients())
    return Target(table="locks")


def test_an_owner_id_releases_its_own_lock_and_no_other(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    store.acquire(acquire("anna", lock_name="a"))
    assert release_own(locks, "a", owner("ben")) == exit_codes.LOST
    assert release_own(locks, "a", owner("anna")) == 0
    assert table.state("a").holders == ()
    assert release_own(locks, "a", owner("anna")) == 0, "its answer may have been lost"
    told = capsys.readouterr()
    assert told.out == "a: released\n" * 2
    assert owner("ben") not in told.err
    with pytest.raises(InvalidRequest, match="owner"):
        release_own(locks, "a", "short")


def test_who_releases_is_the_principal_and_the_user_of_the_machine(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "olga")
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    assert caller(target) == ("arn:aws:sts::123456789012:assumed-role/Admin/olga (olga@laptop)")

    def fail() -> Callable[[], object]:
        raise EndpointConnectionError(endpoint_url="sts")

    monkeypatch.setattr(_Clients, "get_caller_identity", lambda _self: fail())
    assert caller(target) == "olga@laptop"

    def nobody() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert caller(target) == "unknown user@laptop"


def test_no_one_is_asked_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert operator_commands.ask_at_the_terminal() is None


def test_as_json_a_release_says_which_grant_has_ended(
    locks: LockClient, store: Operations, capsys: Output
) -> None:
    held = store.acquire(acquire("anna", lock_name="a"))
    token = locks.describe("a").holders[0].fencing_token  # type: ignore[union-attr]  # it is held
    assert held
    assert forced(locks, as_json=True) == 0
    ended = {"lock_name": "a", "released": True, "fencing_token": token}
    assert json.loads(capsys.readouterr().out) == ended


def test_as_json_an_owner_that_does_not_hold_has_released_nothing(
    locks: LockClient, store: Operations, capsys: Output
) -> None:
    store.acquire(acquire("anna", lock_name="a"))
    assert release_own(locks, "a", owner("ben"), as_json=True) == exit_codes.LOST
    told = capsys.readouterr()
    assert json.loads(told.out) == {"lock_name": "a", "released": False}
    assert "nothing was released" in told.err
    assert release_own(locks, "a", owner("anna"), as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"lock_name": "a", "released": True}


def test_a_lock_is_paused_limited_and_resumed_and_all_commands_show_it(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    change = partial(change_ceiling, locks, reason="freeze", requested_by="olga")
    store.acquire(acquire("anna", lock_name="a", limit=3))
    assert change("a", 0) == 0
    assert capsys.readouterr().out == "a: paused; held by 1 of 3, paused\n"
    [lock] = locks.list()
    assert one_line(lock).split("\t")[1] == "held by 1 of 3, paused"
    shown = list(details(lock))
    assert shown[0] == "a: held by 1 of 3, paused, 0 waiting"
    at = shown.index("paused")
    assert shown[at + 2 : at + 4] == ["  by: olga", "  reason: freeze"]
    store.release(release("anna", lock_name="a"))
    assert change("a", 2) == 0
    assert capsys.readouterr().out == "a: limited to 2; free, limited to 2\n"
    [lock] = locks.list()
    assert is_wanted(lock, waiting=False, free=False)
    assert change("a", None, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"lock_name": "a", "limit": None}
    assert table.state("a").ceiling is None
    [lock] = locks.list()
    assert not is_wanted(lock, waiting=False, free=False)


def test_the_table_of_a_terminal_tells_a_paused_lock_from_a_free_one(
    locks: LockClient, store: Operations
) -> None:
    change = partial(change_ceiling, locks, reason="freeze", requested_by="olga")
    store.acquire(acquire("anna", lock_name="held", limit=3))
    for name in ("held", "idle"):
        change(name, 0)
    console = terminal(100)
    console.print(lock_table(sorted(locks.list(), key=lambda lock: lock.name), console))
    held, idle = shown_lines(console)[1:]
    assert held.split()[:2] == ["held", "1/0"]
    assert idle.split() == ["idle", "paused"]


def queued(store: Operations) -> None:
    """Anna holds, and two wait."""
    store.acquire(acquire("anna", lock_name="a"))
    store.acquire(acquire("ben", lock_name="a", waits=True))
    store.acquire(acquire("carl", lock_name="a", waits=True))


def test_a_queue_is_shown_then_asked_about_then_emptied_and_the_holder_stays(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    queued(store)
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(capsys.readouterr().err + question)
        return True

    assert empty_queue(locks, "lock table 'locks'", "a", yes=False, ask=ask) == 0
    [told] = asked
    for part in ("2 wait", "ben", "carl", "ask again wait again"):
        assert part in told
    assert owner("ben") not in told
    assert capsys.readouterr().out == "a: removed 2 waiters; held by 1 of 1\n"
    assert [holder.owner_name for holder in table.state("a").holders] == ["anna"]


def test_a_queue_is_emptied_only_after_a_yes(
    locks: LockClient, store: Operations, table: Table, capsys: Output
) -> None:
    queued(store)
    before = dict(table.memory.items)
    no = empty_queue(locks, "the table", "a", yes=False, ask=lambda _question: False)
    assert no == exit_codes.DECLINED
    with pytest.raises(SystemExit) as ended:
        empty_queue(locks, "the table", "a", yes=False, ask=None)
    assert ended.value.code == exit_codes.USAGE
    assert table.memory.items == before
    capsys.readouterr()
    assert empty_queue(locks, "the table", "a", yes=True, ask=None, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {"lock_name": "a", "removed": 2}


def test_a_lock_that_the_table_does_not_know_has_no_queue_to_empty(locks: LockClient) -> None:
    none = empty_queue(locks, "the table", "never", yes=True, ask=None)
    assert none == exit_codes.UNKNOWN_LOCK
