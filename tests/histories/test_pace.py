"""Real processes take turns at one pace.

`PACE_RESERVATIONS=1000 PACE_PROCESSES=20 pytest tests/histories/test_pace.py` prints the figures.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import accumulate, pairwise

from fairlock.protocol.pace import LEAST_SLOT_US, interval_us
from tests.histories.paced_processes import RATE, processes

RESERVATIONS = int(os.environ.get("PACE_RESERVATIONS", "1000"))
FLEET = int(os.environ.get("PACE_PROCESSES", "20"))
_SHARES = 3


def test_slots_of_three_processes_are_an_interval_apart_in_the_order_of_reservation(
    record_property: Callable[[str, object], None],
) -> None:
    each = -(-RESERVATIONS // _SHARES)
    with processes(_SHARES) as fleet:
        reserved = fleet.reserve(each)
    first, *gaps = [b.begins_us - a.begins_us for a, b in pairwise(reserved)]
    assert len(reserved) == each * _SHARES
    # The first one found no other, so AWS's time is known to an edge only.
    assert interval_us(*RATE) <= first <= interval_us(*RATE) + LEAST_SLOT_US
    assert set(gaps) == {interval_us(*RATE)}
    latest = accumulate((one.began for one in reserved), max)
    assert all(one.ended >= began for one, began in zip(reserved, latest, strict=True)), (
        "a slot went to a caller that asked after another had its later one"
    )
    # Each process reads the time once, and finds by a refused write that others came before.
    most = len(reserved) + 2 * _SHARES
    assert len(reserved) < fleet.network.requests <= most
    text = (
        f"{len(reserved)} reservations by {_SHARES} processes: all gaps {gaps[0] / 1e6:g} s but "
        f"the first, {first / 1e6:.2f} s; in order; {fleet.network.requests} requests"
    )
    record_property("figures", text)


def test_once_an_hour_one_process_of_a_fleet_runs(
    record_property: Callable[[str, object], None],
) -> None:
    with processes(FLEET) as fleet:
        assert sum(fleet.run_hourly()) == 1
    requests = fleet.network.requests / FLEET
    text = f"once an hour, {FLEET} processes at one moment: one ran; {requests:.1f} requests each"
    record_property("figures", text)
