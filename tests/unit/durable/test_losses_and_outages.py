"""What `hold` and `run` do if the lock is lost, or the service does not answer or refuses."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import DurableLock, durable_lock
from fairlock.errors import InvalidRequest, LockStoreMisconfigured, LockStoreUnavailable
from fairlock.testing import ManualClock
from tests.support import release
from tests.unit.durable.service import (
    LOCK,
    Body,
    Json,
    Service,
    error_of,
    fails,
    holding,
    result_of,
)

SILENCE = LockStoreUnavailable("as a test wants it")
NO_PERMISSION = LockStoreMisconfigured("not authorized to perform: lambda:InvokeFunction")


def test_a_lock_that_was_taken_away_is_reported_at_the_end() -> None:
    service = Service()
    kind, message = error_of(holding(service, partial(lose, service)), service)
    assert kind.endswith("LockLost")
    assert "was not held any more" in message


def lose(service: Service, context: DurableContext, lock: DurableLock) -> None:
    """A release by hand, and another owner since."""

    def take_away(_: object) -> None:
        assert service.state(LOCK).holder(lock.owner_id) is not None
        service.store().release(release("", lock_name=LOCK, owner_id=lock.owner_id))
        service.take("ben")
        service.free("ben")

    context.step(take_away, name="someone takes it")


def test_an_invocation_that_is_delivered_after_the_end_takes_nothing() -> None:
    """The very request that `hold` has made; another owner has come and gone since."""
    clock = ManualClock()
    service = Service(clock=clock)
    result_of(holding(service), service)
    clock.advance(5)
    service.take("ben")
    service.free("ben")
    service.acquire(service.calls[service.called().index("acquire")][1])
    assert service.state(LOCK).holders == ()


def test_a_loss_is_noted_on_the_error_of_the_work() -> None:
    service, notes = Service(), list[str]()

    def work(context: DurableContext, lock: DurableLock) -> None:
        lose(service, context, lock)
        int("no number")

    def body(event: object, context: DurableContext) -> None:
        try:
            holding(service, work)(event, context)
        except ValueError as error:
            notes.extend(error.__notes__)

    result_of(body, service)
    assert notes[-1].startswith("At the end of the lock: lock 'customer/42'")


def test_an_acquisition_that_is_released_while_it_waits_is_lost() -> None:
    service = Service()
    service.take("anna")

    def release_waiter(name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and len(service.calls) == 1:
            owner_id = request["owner_id"]
            service.store().release(release("", lock_name=LOCK, owner_id=owner_id, waits=True))

    service.after = release_waiter
    assert error_of(holding(service), service)[0].endswith("LockLost")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_a_service_may_have_granted_unanswered_is_given_back(moment: str) -> None:
    service = Service(**{moment: fails("acquire", SILENCE)})
    kind, message = error_of(holding(service), service)
    assert kind.endswith("LockStoreUnavailable")
    assert "did not answer" in message
    assert service.state(LOCK).held == 0
    assert len({request["owner_id"] for _, request in service.calls}) == 1


@pytest.mark.parametrize("error", [SILENCE, NO_PERMISSION])
def test_a_release_that_fails_does_not_replace_the_result(error: Exception) -> None:
    service = Service(before=fails("release", error))
    assert result_of(holding(service, lambda *_: "done"), service).result == '"done"'
    assert service.state(LOCK).held == 1  # The end of the execution frees it.


LATER = range(1, 99)
"""The calls after the first one."""


@pytest.mark.parametrize("refused_releases", [0, 2])
def test_a_grant_with_a_lost_reply_is_given_back_after_a_refusal(refused_releases: int) -> None:
    refuse_acquire = fails("acquire", NO_PERMISSION, LATER)
    refuse_release = fails("release", NO_PERMISSION, range(refused_releases))

    def refuse(name: str, _request: Json) -> None:
        refuse_acquire(name)
        refuse_release(name)

    service = Service(before=refuse, after=fails("acquire", SILENCE))
    kind, message = error_of(holding(service), service)
    assert kind.endswith("LockStoreMisconfigured")
    assert "not authorized" in message
    assert service.called() == ["acquire", "release"]
    assert service.state(LOCK).held == 0


def test_a_waiter_whose_second_call_is_refused_leaves_the_queue() -> None:
    service = Service(before=fails("acquire", NO_PERMISSION, LATER))
    service.take("anna")
    kind, _ = error_of(holding(service), service)
    assert kind.endswith("LockStoreMisconfigured")
    assert service.table.waiters(LOCK) == []


@pytest.mark.parametrize("error", [InvalidRequest(field="limit", rule="too high"), NO_PERMISSION])
def test_an_acquire_that_can_never_succeed_is_not_repeated(error: Exception) -> None:
    """A second one would be granted."""
    service, caught = Service(before=fails("acquire", error, [0])), list[Exception]()

    def body(event: object, context: DurableContext) -> None:
        try:
            holding(service)(event, context)
        except (InvalidRequest, LockStoreMisconfigured) as found:
            caught.append(found)

    result_of(body, service)
    assert {(type(found), str(found)) for found in caught} == {(type(error), str(error))}


class Hours:
    """The time that steps note, moved by hand; the local runner has a time of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        self.noted: list[float] = []
        monkeypatch.setattr(durable_lock, "_note_time", self.note)

    def note(self, _: object) -> float:
        self.noted.append(self.now)
        return self.now

    def pass_(self, hours: float) -> None:
        self.now += hours * 3600


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    return Hours(monkeypatch)


def hours_of_work(hours: Hours, service: Service, *, steps: int, checks: bool) -> Body:
    """Work of an hour a step, with a suspension in each, so that it is replayed as often."""

    def work(context: DurableContext, lock: DurableLock) -> list[int]:
        done: list[int] = []
        for number in range(steps):
            if checks:
                lock.check(context)
            context.step(lambda _: hours.pass_(1), name=f"hour {number}")
            context.wait(Duration.from_seconds(1))
            done.append(number)
        return done

    return holding(service, work, max_hold=timedelta(hours=3))


@pytest.mark.parametrize(
    ("steps", "checks", "noted"),
    # The grant, three checks that pass, the one that does not, and that of the release.
    [(9, True, [0, 0, 1, 2, 3, 3]), (4, False, [0, 4])],
    ids=["told by a check", "told by the end of the block"],
)
def test_a_max_hold_counts_from_the_grant_through_all_replays(
    hours: Hours, steps: int, noted: list[int], *, checks: bool
) -> None:
    service = Service()
    kind, message = error_of(hours_of_work(hours, service, steps=steps, checks=checks), service)
    assert kind.endswith("LockLost")
    assert f"lock '{LOCK}': its max_hold of 10800 s is over" in message
    assert [round((at - hours.noted[0]) / 3600) for at in hours.noted] == noted
    assert service.state(LOCK).held == 0


def test_work_that_is_done_in_time_returns(hours: Hours) -> None:
    service = Service()
    body = hours_of_work(hours, service, steps=2, checks=True)
    assert result_of(body, service).result == "[0, 1]"


def test_a_lock_without_max_hold_notes_no_time(hours: Hours) -> None:
    service = Service()
    result_of(holding(service, lambda context, lock: lock.check(context)), service)
    assert hours.noted == []
