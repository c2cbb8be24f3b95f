"""Items that earlier commits wrote: who holds keeps it, who waits keeps its place, the dead go.

The items stand here as commit 87ff4e7 wrote them, without the attributes that came later:
`released_at`, `asked_at_ms`, `written_at_ms`, `redrives` and `done`.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from fairlock.protocol.model import Grant
from fairlock.protocol.outcomes import Queued, Refusal, RefusalReason, Released
from fairlock.store.keep_alive import KeepAliveOutcome
from fairlock.store.reap import AskedTooEarly, ExecutionEnded
from tests.support import LOCK, START_MS, acquire, owner
from tests.support.store_bench import OTHER_RUN, RUN, Bench

TOKEN: Final = START_MS * 1000 + 1
STATE: Final = {"pk": {"S": f"LOCK#{LOCK}"}, "sk": {"S": "STATE"}}
POLLS: Final = {"waits": True, "poll_interval_ms": 2000}


def number(value: int) -> dict[str, str]:
    return {"N": str(value)}


def record(name: str) -> dict[str, Any]:
    times = {"a": number(START_MS), "e": number(START_MS + 60_000), "l": number(60_000)}
    who = {"x": {"S": "billing:run"}} if name == "run" else {"o": {"S": name}}
    return {"M": {**times, "n": number(1), "r": number(1), **who}}


def held(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - attributes
    return {
        **STATE,
        f"holder:{owner(name)}": record(name),
        f"token:{owner(name)}": number(TOKEN),
        "fencing_token": number(TOKEN),
        "limit": number(1),
        "held": number(1),
        "expiry_time": number(START_MS // 1000 + 172_800),
        "executions": {"S": "arn:aws:states:us-east-1:123456789012:execution:"},
        **more,
    }


def waiter(name: str, entered_at_ms: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - same
    return {
        "pk": STATE["pk"],
        "sk": {"S": f"WAITER#{entered_at_ms:015d}#{owner(name)}"},
        "lease_ms": number(60_000),
        "owner_name": {"S": name},
        "owner_id": {"S": owner(name)},
        "limit": number(1),
        "entered_at_ms": number(entered_at_ms),
        "expires_at_ms": number(entered_at_ms + 12_000),
        "expiry_time": number(entered_at_ms // 1000 + 3_612),
        **more,
    }


def claim(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - same
    return {
        "pk": {"S": f"EXECUTION#{RUN}"},
        "sk": {"S": f"LOCK#{LOCK}#{owner(name)}#16"},
        "lock_name": {"S": LOCK},
        "owner_id": {"S": owner(name)},
        "expiry_time": number(START_MS // 1000 + 34_560_000),
        "revision": number(1),
        **more,
    }


QUEUE: Final = (
    held("anna", contended={"BOOL": True}, wait_seq=number(4)),
    waiter("ben", START_MS, task_token={"S": "ben"}, execution_arn={"S": RUN}),
    claim("ben", entered_at_ms=number(START_MS)),
    waiter("carl", START_MS + 1, poll_interval_ms=number(2000)),
)
KEPT_ALIVE: Final = (held("run"), claim("run", task_token={"S": "heartbeat"}))


def put(bench: Bench, *items: dict[str, Any]) -> None:
    for item in items:
        bench.client.items[item["pk"]["S"], item["sk"]["S"]] = item


def ask_again(bench: Bench, name: str, **terms: Any) -> str:  # noqa: ANN401 - of the request
    bench.clock.advance(2)
    return type(bench.ask(name, waits=True, **terms)).__name__


def test_a_holder_renews_and_releases_by_its_own_token(bench: Bench) -> None:
    put(bench, held("anna"))
    renewed = bench.renew("anna")
    assert isinstance(renewed, Grant)
    assert renewed.fencing_token == TOKEN
    assert isinstance(bench.release("anna"), Released)
    after = bench.grant("ben")
    assert after.fencing_token > TOKEN


def test_no_one_takes_a_lock_from_its_holder_before_its_lease_is_over(bench: Bench) -> None:
    put(bench, held("anna"))
    bench.clock.advance(60)
    bench.refuse("ben")
    bench.clock.advance(2)
    bench.grant("ben")


def test_who_released_is_still_refused_when_it_comes_late(bench: Bench) -> None:
    put(bench, {**STATE, "fencing_token": number(TOKEN), "last_released": {"S": owner("anna")}})
    assert bench.refuse("anna").reason is RefusalReason.ALREADY_RELEASED


def test_who_waits_asks_again_and_is_served_in_its_turn(bench: Bench) -> None:
    """Both ask once more, as a workflow does after its fallback period."""
    put(bench, *QUEUE)
    place = {"execution_arn": RUN, "task_token": "ben, later"}
    assert ask_again(bench, "ben", **place) == Queued.__name__
    assert ask_again(bench, "carl", poll_interval_ms=2000, ticket=START_MS + 1) == Queued.__name__
    bench.release("anna")
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben, later"])
    bench.release("ben", execution_arn=RUN)
    assert (bench.holders(), bench.waiters()) == (["carl"], [])


def test_who_waits_is_handed_the_lock_without_asking_again(bench: Bench) -> None:
    put(bench, *QUEUE)
    bench.release("anna")
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


def test_the_event_of_a_run_that_the_claim_does_not_tell_is_not_believed(bench: Bench) -> None:
    """Step Functions is asked: the claim may be of a later run, which works."""
    put(bench, *KEPT_ALIVE)
    ended = ExecutionEnded(execution_arn=RUN, redrives=0, ended_at_ms=START_MS)
    with pytest.raises(AskedTooEarly):
        bench.store().reap(ended)
    assert bench.holders() == [RUN]
    bench.end()
    assert bench.store().reap(ended).holders == 1
    assert bench.holders() == []


def test_a_workflow_is_kept_alive_and_ends_in_the_usual_way(bench: Bench) -> None:
    put(bench, *KEPT_ALIVE)
    assert bench.beat("run") is KeepAliveOutcome.RENEWED
    bench.release("run", execution_arn=RUN)
    assert (bench.holders(), bench.claims()) == ([], [])


def test_a_pass_of_the_reaper_goes_on_where_the_earlier_version_stopped(bench: Bench) -> None:
    put(bench, held("run"), claim("run", fenced=number(1)))
    bench.end()
    assert bench.reap().holders == 1
    bench.reap(second=True)
    bench.refuse("run", execution_arn=RUN)
    assert bench.holders() == []


def test_a_fenced_workflow_that_is_redriven_takes_its_lock_again(bench: Bench) -> None:
    put(bench, claim("run", fenced=number(2)))
    bench.redrive()
    outcome = bench.beat("run", redrives=1)
    assert outcome is KeepAliveOutcome.REACQUIRED
    assert bench.holders() == ["run"]


def test_an_execution_that_died_unnoticed_loses_its_lock_to_the_next_caller(bench: Bench) -> None:
    put(bench, *KEPT_ALIVE)
    bench.clock.advance(62)
    other = acquire("ben", execution_arn=OTHER_RUN)
    assert isinstance(bench.store().acquire(other), Refusal)
    bench.end()
    bench.clock.advance(62)
    assert isinstance(bench.store().acquire(other), Grant)


def test_all_of_it_is_shown(bench: Bench) -> None:
    put(bench, *QUEUE)
    [shown] = bench.store().list_locks()
    described = bench.store().describe(LOCK)
    assert described is not None
    assert described == shown
    assert [each.owner_name for each in described.waiters.first] == ["ben", "carl"]
