"""Work that takes five times as long as its lease is not robbed, and costs few questions."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from fairlock.protocol.lease_time import over_at_ms, stored_end_ms
from tests.e2e.lifetimes.contested_lock import ALIKE_TIMES
from tests.e2e.lifetimes.overrunning_work import CONTENDERS, OVERRUN_SECONDS, Overrun
from tests.e2e.lifetimes.stack import PLAIN_LEASE_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

SHORTEST_EXTENSION_SECONDS = over_at_ms(stored_end_ms(0, PLAIN_LEASE_SECONDS * 1000)) / 1000


def test_it_is_never_robbed_however_often_others_ask(
    runs: ScenarioRuns, record_property: Callable[[str, object], None]
) -> None:
    overruns: list[Overrun] = runs["overrun"]
    assert len(overruns) == ALIKE_TIMES
    assert not any(each.robbed for each in overruns)
    assert {each.ended.status for each in overruns} == {"SUCCEEDED"}
    refused = [each.refused for each in overruns]
    asked = [each.asked for each in overruns]
    extended = [each.extended for each in overruns]
    record_property(
        "figures",
        f"work of {OVERRUN_SECONDS} s with a lease of {PLAIN_LEASE_SECONDS} s, {CONTENDERS} "
        f"contenders: n = {ALIKE_TIMES}, refused {min(refused)}-{max(refused)} times, "
        f"DescribeExecution median {statistics.median(asked):.0f}, max {max(asked)}, "
        f"extended median {statistics.median(extended):.0f}, max {max(extended)}",
    )
    assert min(refused) > max(asked) + max(extended)
    assert min(extended) >= 2
    for each in overruns:
        most_extensions = each.held_seconds // SHORTEST_EXTENSION_SECONDS + 1
        assert each.extended <= most_extensions
        # Contenders that ask in the same moment are all told, and one of them extends.
        assert each.asked <= most_extensions * CONTENDERS


def test_contenders_that_do_not_ask_rob_it(runs: ScenarioRuns) -> None:
    robbed: list[Overrun] = runs["overrun, robbed"]
    assert all(each.robbed for each in robbed)
