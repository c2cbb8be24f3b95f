"""The thread that calls the hook: no client and no event loop waits for it."""

from __future__ import annotations

import json
import math
import runpy
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from fairlock import LockClient, LockEvent
from fairlock.client import reporting
from fairlock.client.reporting import LockEventKind, LockEvents
from fairlock.testing import FakeLockClient, FakeTable
from tests.unit.client.doubles import Hook

BOUND_SECONDS = 30


@pytest.fixture
def told() -> Hook:
    return Hook()


class BusyHook(Hook):
    """Is busy with its first event until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, event: LockEvent) -> None:
        super().__call__(event)
        self.begun.set()
        assert self.goes_on.wait(BOUND_SECONDS)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> BusyHook:
    """The end of a client does not wait for it for long."""
    monkeypatch.setattr(reporting, "_CLOSE_SECONDS", 0.05)
    return BusyHook()


def real_client(hook: object) -> LockClient:
    """With threads, as in production."""
    return LockClient("locks", client=FakeTable(), heartbeat_every=math.inf, on_event=hook)  # type: ignore[arg-type]  # in memory


def test_a_hook_that_hangs_delays_neither_requests_nor_for_long_the_end(
    busy: BusyHook, caplog: pytest.LogCaptureFixture
) -> None:
    with real_client(busy) as locks:
        locks.acquire("a").release()
        assert busy.begun.wait(BOUND_SECONDS)
        locks.acquire("b").release()
    assert "on_event is still busy" in caplog.text
    busy.goes_on.set()


def test_an_event_behind_the_end_of_a_client_comes_although_the_hook_is_busy(
    busy: BusyHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that ends is still there when it is reported, so none is started."""
    events = LockEvents(busy)
    events.report(LockEventKind.GRANTED, lock_name="first", owner_name="anna")
    events.close()
    events.close()
    events.report(LockEventKind.LOST, lock_name="last", owner_name="anna")
    busy.goes_on.set()
    monkeypatch.setattr(reporting, "_CLOSE_SECONDS", BOUND_SECONDS)
    events.close()
    assert [event.lock_name for event in busy.events] == ["first", "last"]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_events_come_in_order_before_the_client_is_closed_whatever_the_hook_raises(
    told: Hook, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def hook(event: LockEvent) -> None:
        told(event)
        raise error

    with real_client(hook) as locks:
        for name in "ab":
            locks.acquire(name).release()
    assert told.kinds() == ["Granted", "Released"] * 2
    assert [event.lock_name for event in told.events] == list("aabb")
    assert caplog.text.count("on_event failed") == 4


def test_a_hook_may_close_its_client(told: Hook) -> None:
    is_closed = threading.Event()

    def hook(event: LockEvent) -> None:
        told(event)
        if event.kind == "Released":
            client.close()
            is_closed.set()

    client = real_client(hook)
    client.acquire("a").release()
    assert is_closed.wait(BOUND_SECONDS)


def test_a_hook_that_is_too_slow_misses_events_and_memory_stays_bounded(
    busy: BusyHook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "_MOST_WAITING", 3)
    monkeypatch.setattr(reporting, "_CLOSE_SECONDS", BOUND_SECONDS)
    events = LockEvents(busy)
    events.report(LockEventKind.GRANTED, lock_name="0", owner_name="")
    assert busy.begun.wait(BOUND_SECONDS)
    for number in range(1, 10):
        events.report(LockEventKind.GRANTED, lock_name=str(number), owner_name="")
    busy.goes_on.set()
    events.close()
    assert [event.lock_name for event in busy.events] == ["0", "1", "2", "3"]
    assert caplog.text.count("events are dropped") == 1


def test_without_a_hook_there_is_no_thread_and_with_one_that_cannot_start_no_error(
    told: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(threading.enumerate())
    events = LockEvents(None)
    events.report(LockEventKind.LOST, lock_name="a", owner_name="")
    assert (events.has_thread, set(threading.enumerate()) - before) == (False, set())

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    events = LockEvents(told)
    with monkeypatch.context() as patches:
        patches.setattr(threading.Thread, "start", refuse)
        events.report(LockEventKind.LOST, lock_name="a", owner_name="")
    events.report(LockEventKind.LOST, lock_name="b", owner_name="")
    events.close()
    assert [event.lock_name for event in told.events] == ["a", "b"]
    assert "no thread for on_event" in caplog.text


# The examples of a client's metrics, as they are in examples/client_metrics.


def example(name: str) -> dict[str, Any]:
    """What the example defines."""
    examples = Path(__file__).resolve().parents[3] / "examples" / "client_metrics"
    return runpy.run_path(str(examples / f"{name}.py"))


def use_locks(hook: Any) -> None:  # noqa: ANN401 - a function of the example
    """Waits 5 s, holds 10 s, is refused."""
    with FakeLockClient(on_event=hook) as locks:
        other = locks.another().acquire("order/7")
        locks.clock.at(5, other.release)
        with locks.hold("order/7"):
            locks.another(on_event=hook).try_acquire("order/7")
            locks.clock.advance(10)


def test_each_line_is_embedded_metric_format_without_a_lock_among_the_dimensions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    use_locks(example("emf")["count_in_emf"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in lines if "_aws" in line]
    assert [sorted({"Granted", "Refused", "Released"} & set(line)) for line in lines] == [
        ["Granted"],
        ["Refused"],
        ["Released"],
    ]
    for line in lines:
        [directive] = line["_aws"]["CloudWatchMetrics"]
        assert directive["Dimensions"] == [["service"]]
        assert line["lock_name"] == "order/7"
        for metric in directive["Metrics"]:
            assert isinstance(line[metric["Name"]], int | float)
    assert lines[0]["WaitTime"] == pytest.approx(5, abs=3)
    assert lines[2]["HeldTime"] == pytest.approx(10, abs=3)


def test_the_opentelemetry_example_counts_by_kind_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry is no dependency, so its API is a mock here."""
    api, made = MagicMock(), dict[str, MagicMock]()
    meter = api.metrics.get_meter.return_value
    for make in (meter.create_counter, meter.create_histogram):
        make.side_effect = lambda name, **_: made.setdefault(name, MagicMock())
    monkeypatch.setitem(sys.modules, "opentelemetry", api)
    use_locks(example("otel")["count_in_otel"])
    kinds = {
        name: [call.args[1] for call in (*each.add.mock_calls, *each.record.mock_calls)]
        for name, each in made.items()
    }
    granted, refused, released = ({"kind": kind} for kind in ("Granted", "Refused", "Released"))
    assert kinds == {
        "fairlock.events": [granted, refused, released],
        "fairlock.wait": [granted, refused],
        "fairlock.held": [released],
    }
