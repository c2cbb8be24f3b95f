"""The queue at random, against what must hold of the table."""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.queue_machine import QueueMachine


def test_any_order_of_arrivals_releases_and_deaths_serves_everybody_in_order() -> None:
    run_state_machine_as_test(
        QueueMachine, settings=settings(max_examples=40, stateful_step_count=40)
    )
