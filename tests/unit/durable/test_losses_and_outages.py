"""What `hold` and `run` do if the lock is lost, or the service does not answer or refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from aws_durable_execution_sdk_python import DurableContext
from aws_durable_execution_sdk_python.config import Duration

from fairlock.durable import DurableLock, durable_lock, hold
from fairlock.errors import InvalidRequest, LockStoreMisconfigured
from fairlock.store import acquire as store_acquire
from tests.support import FakeClock, acquire
from tests.support import release as release_request
from tests.support.store_bench import claim_whatever_has_ended
from tests.unit.durable.service import LOCK, Body, Json, Service, error_of, result_of, unavailable


def work_under_the_lock(service: Service, _event: object, context: DurableContext) -> str:
    with hold(context, LOCK, service=service):
        return "done"


def test_a_lock_that_was_taken_away_is_reported_at_the_end() -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service) as lock:
            context.step(lambda _: take_away(service, lock), name="someone takes it")

    kind, message = error_of(body, service)
    assert kind.endswith("LockLost")
    assert "was not held any more" in message


def take_away(service: Service, lock: DurableLock) -> None:
    """A release by hand, and another owner since."""
    holder = service.state(LOCK).holder(lock.owner_id)
    assert holder is not None
    service.store().release(release_request("", lock_name=LOCK, owner_id=lock.owner_id))
    service.store().acquire(acquire("ben", lock_name=LOCK))
    service.store().release(release_request("ben", lock_name=LOCK))


@pytest.mark.parametrize("protected", [True, False], ids=["protected", "control"])
def test_an_invocation_that_is_delivered_after_the_end_takes_nothing(
    monkeypatch: pytest.MonkeyPatch, *, protected: bool
) -> None:
    """The very request that `hold` has made; another owner has come and gone since."""
    if not protected:
        monkeypatch.setattr(store_acquire, "write_claim", claim_whatever_has_ended)
    clock = FakeClock()
    service = Service(clock=clock)
    result_of(partial(work_under_the_lock, service), service)
    clock.advance(5)
    service.store().acquire(acquire("ben", lock_name=LOCK))
    service.store().release(release_request("ben", lock_name=LOCK))
    calls = [name for name, _ in service.calls]
    late = service.requests[calls.index("acquire")]
    service.acquire(late)
    holders = [holder.owner_id for holder in service.state(LOCK).holders]
    assert holders == ([] if protected else [late["owner_id"]])


def test_a_loss_is_noted_on_the_error_of_the_work() -> None:
    service, notes = Service(), list[str]()

    def body(_event: object, context: DurableContext) -> None:
        try:
            with hold(context, LOCK, service=service) as lock:
                context.step(lambda _: take_away(service, lock), name="someone takes it")
                int("no number")
        except ValueError as error:
            notes.extend(error.__notes__)

    result_of(body, service)
    assert notes[-1].startswith("At the end of the lock: lock 'customer/42'")


def test_an_acquisition_that_is_released_while_it_waits_is_lost() -> None:
    service = Service()
    service.store().acquire(acquire("anna", lock_name=LOCK))

    def release_waiter(name: str, request: Json, _answer: Json) -> None:
        if name == "acquire" and len(service.calls) == 1:
            place = service.table.waiters(LOCK)[0]["sk"]["S"]
            assert place
            service.store().release(
                release_request("", lock_name=LOCK, owner_id=request["owner_id"], waits=True)
            )

    service.after = release_waiter

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    assert error_of(body, service)[0].endswith("LockLost")


def test_a_service_that_does_not_answer_is_no_refusal() -> None:
    service = Service(before=unavailable)

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    kind, message = error_of(body, service)
    assert kind.endswith("LockStoreUnavailable")
    assert "did not answer" in message


def test_what_was_granted_to_a_call_without_an_answer_is_given_back() -> None:
    service = Service()

    def lose_replies(name: str, _request: Json, _answer: Json) -> None:
        if name == "acquire":
            unavailable()

    service.after = lose_replies

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service):
            pass

    assert error_of(body, service)[0].endswith("LockStoreUnavailable")
    assert service.state(LOCK).held == 0
    assert len({owner_id for _, owner_id in service.calls}) == 1


def test_an_outage_of_the_release_does_not_replace_the_result() -> None:
    service = Service()

    def fail_releases(name: str, _request: Json) -> None:
        if name == "release":
            unavailable()

    service.before = fail_releases
    result = result_of(partial(work_under_the_lock, service), service)
    assert result.result == '"done"'
    assert service.state(LOCK).held == 1  # The end of the execution frees it.


class Refuser:
    """Refuses each acquire but the first, and as many releases as it is told to."""

    def __init__(self, *, loses_first_reply: bool, refused_releases: int = 0) -> None:
        self.service = Service(before=self._refuse, after=self._lose)
        self._loses_first_reply = loses_first_reply
        self._left = {"acquire": -1, "release": refused_releases}

    def _refuse(self, name: str, _request: Json) -> None:
        self._left[name] -= 1
        if (name == "acquire" and self.service.calls) or self._left[name] >= 0:
            raise LockStoreMisconfigured("not authorized to perform: lambda:InvokeFunction")

    def _lose(self, name: str, _request: Json, _answer: Json) -> None:
        if name == "acquire" and self._loses_first_reply:
            unavailable()


LEAVES = pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "control"])


def do_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_lock.Acquisition, "_leave", lambda *_, **__: None)


@LEAVES
@pytest.mark.parametrize("refused_releases", [0, 2])
def test_a_grant_whose_reply_was_lost_is_given_back_when_the_repeat_is_refused(
    monkeypatch: pytest.MonkeyPatch, refused_releases: int, *, leaves: bool
) -> None:
    if not leaves:
        do_not_leave(monkeypatch)
    refuser = Refuser(loses_first_reply=True, refused_releases=refused_releases)
    service = refuser.service
    kind, message = error_of(partial(work_under_the_lock, service), service)
    assert kind.endswith("LockStoreMisconfigured")
    assert "not authorized" in message
    assert [name for name, _ in service.calls] == ["acquire", "release"][: 1 + leaves]
    assert service.state(LOCK).held == (0 if leaves else 1)


@LEAVES
def test_a_waiter_whose_second_call_is_refused_leaves_the_queue(
    monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    if not leaves:
        do_not_leave(monkeypatch)
    service = Refuser(loses_first_reply=False).service
    service.store().acquire(acquire("anna", lock_name=LOCK))
    kind, _ = error_of(partial(work_under_the_lock, service), service)
    assert kind.endswith("LockStoreMisconfigured")
    service.store().release(release_request("anna", lock_name=LOCK))
    assert service.state(LOCK).held == (0 if leaves else 1)


@pytest.mark.parametrize(
    "error", [InvalidRequest(field="limit", rule="too high"), LockStoreMisconfigured("no table")]
)
def test_an_acquire_that_can_never_succeed_is_not_repeated(error: Exception) -> None:
    service, asked = Service(), list[str]()

    def refuse(name: str, _request: Json) -> None:
        asked.append(name)
        raise error

    service.before = refuse
    caught: list[Exception] = []

    def body(_event: object, context: DurableContext) -> None:
        try:
            with hold(context, LOCK, service=service):
                pass
        except (InvalidRequest, LockStoreMisconfigured) as found:
            caught.append(found)

    result_of(body, service)
    assert {(type(found), str(found)) for found in caught} == {(type(error), str(error))}
    assert asked.count("acquire") == 1


def test_a_release_that_can_never_succeed_does_not_replace_the_result() -> None:
    service = Service()

    def refuse(name: str, _request: Json) -> None:
        if name == "release":
            message = "no permission"
            raise LockStoreMisconfigured(message)

    service.before = refuse
    result = result_of(partial(work_under_the_lock, service), service)
    assert result.result == '"done"'


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


def held_for(hours: Hours, service: Service, *, steps: int, checks: bool) -> Body:
    """Work of an hour a step, with a suspension in each, so that it is replayed as often."""

    def body(_event: object, context: DurableContext) -> list[int]:
        done: list[int] = []
        with hold(context, LOCK, max_hold=timedelta(hours=3), service=service) as lock:
            for number in range(steps):
                if checks:
                    lock.check(context)
                context.step(lambda _: hours.pass_(1), name=f"hour {number}")
                context.wait(Duration.from_seconds(1))
                done.append(number)
        return done

    return body


def test_a_max_hold_counts_from_the_grant_through_all_replays(hours: Hours) -> None:
    service = Service()
    kind, message = error_of(held_for(hours, service, steps=9, checks=True), service)
    assert kind.endswith("LockLost")
    assert f"lock '{LOCK}': its max_hold of 10800 s is over" in message
    # The grant, three checks that pass, the one that does not, and that of the release.
    assert [round((at - hours.noted[0]) / 3600) for at in hours.noted] == [0, 0, 1, 2, 3, 3]
    assert service.state(LOCK).held == 0


def test_a_time_that_each_replay_takes_again_would_never_be_over(
    hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the grant is not recorded, so it seems to have come just now."""
    granted = durable_lock.Acquisition._granted  # noqa: SLF001 - what records it

    def grant_anew(self: durable_lock.Acquisition, token: int) -> DurableLock:
        return replace(granted(self, token), _granted_at=hours.now)

    monkeypatch.setattr(durable_lock.Acquisition, "_granted", grant_anew)
    service = Service()
    done = result_of(held_for(hours, service, steps=9, checks=True), service)
    assert done.result == str([*range(9)])


def test_without_a_check_the_end_of_the_block_tells_it(hours: Hours) -> None:
    service = Service()
    kind, message = error_of(held_for(hours, service, steps=4, checks=False), service)
    assert kind.endswith("LockLost")
    assert "its max_hold of 10800 s is over" in message
    assert service.state(LOCK).held == 0


def test_work_that_is_done_in_time_returns(hours: Hours) -> None:
    service = Service()
    assert result_of(held_for(hours, service, steps=2, checks=True), service).result == "[0, 1]"


def test_a_lock_without_max_hold_notes_no_time(hours: Hours) -> None:
    service = Service()

    def body(_event: object, context: DurableContext) -> None:
        with hold(context, LOCK, service=service) as lock:
            lock.check(context)

    result_of(body, service)
    assert hours.noted == []
