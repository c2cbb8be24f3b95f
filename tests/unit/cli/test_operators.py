"""Commands that free, limit and pause locks, and empty queues: what was shown, after a yes."""

from __future__ import annotations

import getpass
import io
import json
import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from botocore.exceptions import EndpointConnectionError

from fairlock.cli import exit_codes
from fairlock.cli.operator_commands import ask_at_the_terminal
from fairlock.cli.target import Target, caller
from tests.support import Operations, acquire, owner, release
from tests.support.faulty_table import ENDPOINT, Fault, down
from tests.unit.cli.conftest import CALLER, Account, Run
from tests.unit.client.doubles import Table

Answers = Callable[..., None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Puts a person at the terminal, who answers once, when something else has happened."""

    def sit_down(answer: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        def readline(*_size: int) -> str:
            meanwhile()
            return f"{answer}\n"

        monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=readline))

    return sit_down


@pytest.fixture
def held(store: Operations) -> None:
    """Anna holds, and two wait."""
    store.acquire(acquire("anna", lock_name="a", data='{"job":7}'))
    for name in ("ben", "carl"):
        store.acquire(acquire(name, lock_name="a", waits=True))


def holders(table: Table) -> list[str]:
    return [holder.owner_name for holder in table.state("a").holders]


FORCE = "release a --force --yes"


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("line", ["release a --force", "empty-queue a"])
def test_nothing_is_changed_without_a_yes(
    line: str, fairlock: Run, table: Table, answers: Answers
) -> None:
    before = dict(table.memory.items)
    assert ask_at_the_terminal() is None
    status, _, errors = fairlock(line)
    assert (status, "no terminal to ask on: give --yes" in errors) == (exit_codes.USAGE, True)
    for no in ("n", ""):
        answers(no)
        assert fairlock(line).status == exit_codes.DECLINED == 1
    assert table.memory.items == before
    assert fairlock(f"{line} --yes").status == 0


@pytest.mark.usefixtures("held")
def test_the_holder_is_shown_then_asked_about_then_released(
    fairlock: Run, table: Table, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.cli.operator_commands.caller", lambda _target: "olga")
    held_meanwhile: list[str] = []
    answers("y", lambda: held_meanwhile.extend(holders(table)))
    status, output, told = fairlock("release a --force --reason hangs")
    assert (status, output.strip()) == (0, "a: released by force; held by 1 of 1")
    assert re.search(r"anna.*fencing token.*{\"job\":7}.*Release it by force\?", told, re.DOTALL)
    assert "Its work is not stopped by this; the oldest waiter gets the lock." in told
    assert owner("anna") not in told
    assert (held_meanwhile, holders(table)) == (["anna"], ["ben"])
    last = table.state("a").last_forced_release
    assert last is not None
    assert (last.requested_by, last.reason) == ("olga", "hangs")
    assert "  reason: hangs" in fairlock("show a").out


@pytest.mark.usefixtures("held")
def test_a_queue_is_shown_then_asked_about_then_emptied_and_the_holder_stays(
    fairlock: Run, table: Table, answers: Answers
) -> None:
    waited_meanwhile: list[str] = []
    answers("y", lambda: waited_meanwhile.extend(table.waiters("a")))
    status, output, told = fairlock("empty-queue a")
    assert (status, output.strip()) == (0, "a: removed 2 waiters; held by 1 of 1")
    assert [part for part in ("2 wait", "ben", "carl", "ask again wait") if part not in told] == []
    assert owner("ben") not in told
    assert (waited_meanwhile, table.traces("a")) == (["ben", "carl"], ["anna"])


def test_a_holder_that_comes_while_someone_thinks_is_not_released(
    fairlock: Run, store: Operations, table: Table, answers: Answers
) -> None:
    store.acquire(acquire("anna", lock_name="a"))

    def think() -> None:
        store.release(release("anna", lock_name="a"))
        store.acquire(acquire("ben", lock_name="a"))

    answers("y", think)
    assert fairlock("release a --force").status == exit_codes.HOLDER_CHANGED == 73
    assert holders(table) == ["ben"]


def test_of_many_holders_one_must_be_named(fairlock: Run, store: Operations, table: Table) -> None:
    for name in ("anna", "ben"):
        store.acquire(acquire(name, lock_name="a", limit=2))
    tokens = [holder.fencing_token for holder in table.state("a").holders]
    status, _, told = fairlock(FORCE)
    assert status == exit_codes.USAGE
    assert all(f"--token {token}: " in told for token in tokens)
    status, _, told = fairlock(f"{FORCE} --token 7")
    assert status == exit_codes.HOLDER_CHANGED
    assert "no holder has the fencing token 7" in told
    assert fairlock(f"{FORCE} --token {tokens[1]}").status == 0
    assert holders(table) == ["anna"]


@pytest.mark.parametrize("data", ['{"a":' * 1018, "[1]"])
def test_data_that_cannot_be_read_keeps_no_one_from_releasing(
    fairlock: Run, store: Operations, table: Table, data: str
) -> None:
    store.acquire(acquire("anna", lock_name="a", data=data))
    status, _, errors = fairlock(FORCE)
    assert (status, f"data: {data}" in errors, holders(table)) == (0, True, [])


def test_if_data_had_to_be_read_the_holder_could_not_be_released(
    fairlock: Run, store: Operations, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlock.protocol.description.read_data", json.loads)
    store.acquire(acquire("anna", lock_name="a", data='{"a":' * 1018))
    with pytest.raises((ValueError, RecursionError)):
        fairlock(FORCE)
    assert holders(table) == ["anna"]


def test_what_no_one_holds_or_knows_is_66(fairlock: Run, store: Operations) -> None:
    for line in (FORCE, "empty-queue a --yes"):
        assert fairlock(line).status == exit_codes.UNKNOWN_LOCK == 66
    store.acquire(acquire("anna", lock_name="a"))
    store.release(release("anna", lock_name="a"))
    assert fairlock(FORCE).status == exit_codes.UNKNOWN_LOCK


def test_the_release_stands_though_no_one_can_read_what_came_of_it(
    fairlock: Run, store: Operations, table: Table
) -> None:
    store.acquire(acquire("anna", lock_name="a"))

    outage = down(EndpointConnectionError(endpoint_url=ENDPOINT))
    table.will(Fault(of=("update_item",), after=lambda: table.will(outage)))
    assert fairlock(FORCE)[:2] == (0, "a: released by force; \n")


def test_an_owner_id_releases_its_own_lock_and_no_other(
    fairlock: Run, store: Operations, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"release a --owner {owner('anna')}"
    store.acquire(acquire("anna", lock_name="a"))
    status, output, errors = fairlock(f"release a --owner {owner('ben')}")
    assert (status, output) == (exit_codes.LOST, "")
    assert "nothing was released" in errors
    assert owner("ben") not in errors
    assert fairlock(own) == (0, "a: released\n", "")
    assert holders(table) == []
    assert fairlock(own).status == 0, "its answer may have been lost"
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{owner('anna')}\n"))
    assert fairlock("release a --owner -").status == 0


@pytest.mark.usefixtures("held")
def test_as_json_it_is_told_what_was_done(fairlock: Run, table: Table) -> None:
    token = table.state("a").holders[0].fencing_token
    ended = {"released": True, "fencing_token": token}
    for line, status, told in (
        (f"release a --owner {owner('ben')}", exit_codes.LOST, {"released": False}),
        ("empty-queue a --yes", 0, {"removed": 2}),
        (FORCE, 0, ended),
        ("limit a 2 --reason less", 0, {"limit": 2}),
        ("resume a", 0, {"limit": None}),
    ):
        answer = fairlock(f"{line} --json")
        assert (answer.status, json.loads(answer.out)) == (status, {"lock_name": "a", **told})


def test_who_releases_is_the_principal_and_the_user_of_the_machine(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = partial(caller, Target(table="locks"))
    monkeypatch.setattr(getpass, "getuser", lambda: "olga")
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    assert who() == f"{CALLER} (olga@laptop)"
    account.fails = {"get_caller_identity": EndpointConnectionError(endpoint_url="sts")}
    assert who() == "olga@laptop"
    monkeypatch.setattr(getpass, "getuser", Mock(side_effect=KeyError))
    assert who() == "unknown user@laptop"


def test_a_lock_is_paused_limited_and_resumed_and_all_commands_show_it(
    fairlock: Run, store: Operations, table: Table
) -> None:
    store.acquire(acquire("anna", lock_name="a", limit=3))
    assert fairlock("pause a --reason freeze").out == "a: paused; held by 1 of 3, paused\n"
    assert fairlock("ls").out.split("\t")[1] == "held by 1 of 3, paused"
    shown = fairlock("show a").out.splitlines()
    assert shown[0] == "a: held by 1 of 3, paused, 0 waiting"
    at = shown.index("paused")
    assert shown[at + 2].startswith(f"  by: {CALLER} (")
    assert shown[at + 3] == "  reason: freeze"
    store.release(release("anna", lock_name="a"))
    assert fairlock("limit a 2 --reason less").out == "a: limited to 2; free, limited to 2\n"
    assert fairlock("ls").out.startswith("a\tfree, limited to 2\t")
    assert fairlock("resume a").out == "a: resumed; free\n"
    assert fairlock("ls").out == ""
    assert table.state("a").ceiling is None
