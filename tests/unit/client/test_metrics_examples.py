"""The examples of a client's metrics, as they are in examples/client_metrics."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fairlock.testing import FakeLockClient

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "client_metrics"


def example(name: str) -> dict[str, Any]:
    """What the example defines."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


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


class Instrument:
    """What the API of OpenTelemetry calls a counter or a histogram."""

    def __init__(self) -> None:
        self.told: list[tuple[float, dict[str, str]]] = []

    def add(self, amount: float, attributes: dict[str, str]) -> None:
        self.told.append((amount, attributes))

    record = add


class Meter:
    def __init__(self) -> None:
        self.instruments: dict[str, Instrument] = {}

    def create_counter(self, name: str, *, description: str) -> Instrument:
        assert description
        return self.instruments.setdefault(name, Instrument())

    def create_histogram(self, name: str, *, unit: str) -> Instrument:
        assert unit == "s"
        return self.instruments.setdefault(name, Instrument())


def test_the_opentelemetry_example_counts_by_kind_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenTelemetry is no dependency, so its API is a stub here."""
    meter, api = Meter(), ModuleType("opentelemetry")
    api.metrics = ModuleType("opentelemetry.metrics")  # type: ignore[attr-defined]  # a stub
    api.metrics.get_meter = lambda _name: meter
    monkeypatch.setitem(sys.modules, "opentelemetry", api)
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", api.metrics)
    use_locks(example("otel")["count_in_otel"])
    told = {name: instrument.told for name, instrument in meter.instruments.items()}
    assert [kind for _, kind in told["fairlock.events"]] == [
        {"kind": "Granted"},
        {"kind": "Refused"},
        {"kind": "Released"},
    ]
    assert [kind["kind"] for _, kind in told["fairlock.wait"]] == ["Granted", "Refused"]
    assert [kind["kind"] for _, kind in told["fairlock.held"]] == ["Released"]
