"""A request that was sent more than once may have been written by the first of them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from fairlock.aws import retry
from fairlock.errors import LockStoreUnavailable
from fairlock.protocol.outcomes import Released
from fairlock.testing.fake_table import MemoryTable
from tests.support import FakeClock, acquire, release
from tests.support.faults import FaultyClient, client_error
from tests.support.store_bench import Bench

THROTTLED = client_error("ThrottlingException")
"""As botocore gives up: the reply to its first sending was lost, its repeats were throttled."""


@pytest.fixture
def bench(clock: FakeClock) -> Bench:
    bench = Bench(MemoryTable(), clock)
    bench.store().acquire(acquire("anna"))
    return bench


def written_then_throttled(bench: Bench, *, call: int = 1) -> FaultyClient:
    return FaultyClient(bench.client, error=THROTTLED, when="after", calls=[call])


class OthersBetween:
    """Others use the lock between the first and the second sending of a write."""

    def __init__(self, bench: Bench, inner: Any) -> None:  # noqa: ANN401 - a client
        self._bench = bench
        self._inner = inner
        self._failed = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the client has
        attribute = getattr(self._inner, name)
        if not callable(attribute) or name == "exceptions":
            return attribute

        def call(**arguments: Any) -> Any:  # noqa: ANN401 - same
            if self._failed:
                self._failed = False
                self._bench.pass_through()
            try:
                return attribute(**arguments)
            except ClientError as error:
                self._failed = error is THROTTLED
                raise

        return call


def test_a_release_written_by_a_sending_whose_reply_was_lost_is_released(bench: Bench) -> None:
    store = bench.store(written_then_throttled(bench))
    assert isinstance(store.release(release("anna")), Released)
    assert bench.holders() == []


def test_if_others_have_released_meanwhile_nobody_can_tell(bench: Bench) -> None:
    client = OthersBetween(bench, written_then_throttled(bench))
    with pytest.raises(LockStoreUnavailable):
        bench.store(client).release(release("anna"))


def test_if_the_repeats_were_forgotten_it_would_be_told_that_it_did_not_hold(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "was_repeated", lambda _error: False)
    client = OthersBetween(bench, written_then_throttled(bench))
    assert not isinstance(bench.store(client).release(release("anna")), Released)


def test_the_same_on_a_lock_whose_waiters_have_all_gone(bench: Bench) -> None:
    """There the departure is another write: it clears the flag as well."""
    bench.wait("ben", execution_arn=None)
    bench.client.items.pop(_waiter(bench))
    client = OthersBetween(bench, written_then_throttled(bench, call=2))
    with pytest.raises(LockStoreUnavailable):
        bench.store(client).release(release("anna"))


def _waiter(bench: Bench) -> Any:  # noqa: ANN401 - a key
    return next(key for key in bench.client.items if key[1].startswith("WAITER"))


def test_a_hand_over_whose_reply_was_lost_is_told_to_the_waiter(bench: Bench) -> None:
    bench.wait("ben")
    store = bench.store(written_then_throttled(bench, call=2))
    assert isinstance(store.release(release("anna")), Released)
    assert (bench.holders(), bench.pushed) == (["ben"], ["ben"])


def test_with_a_new_token_for_each_sending_nobody_would_tell_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.client, "tokens", _Forgetful())
    bench.wait("ben")
    store = bench.store(written_then_throttled(bench, call=2))
    store.release(release("anna"))
    assert (bench.holders(), bench.pushed) == (["ben"], [])


class _Forgetful(set[str]):
    """Knows no token, as if each had been another one."""

    def __contains__(self, _token: object) -> bool:
        return False
