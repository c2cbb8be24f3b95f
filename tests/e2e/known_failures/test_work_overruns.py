"""Work that takes longer than its lease."""

from __future__ import annotations

from fairlock.protocol.lease_time import over_at_ms, stored_end_ms
from tests.e2e.known_failures.parts import LEASE_SECONDS
from tests.e2e.known_failures.scenarios import OVERRUN_SECONDS
from tests.e2e.scenario_runs import ScenarioRuns

OVER_AFTER_MS = over_at_ms(stored_end_ms(0, LEASE_SECONDS * 1000))


def test_work_that_overruns_its_lease_is_not_robbed_and_its_result_stands(
    failure_runs: ScenarioRuns,
) -> None:
    overrun = failure_runs.only("overrun")
    assert overrun.ended.status == "SUCCEEDED"
    span = overrun.ended.output
    assert span["ended_ms"] - span["began_ms"] >= OVERRUN_SECONDS * 1000 > OVER_AFTER_MS
    assert len(overrun.knocks.leases_seen) > 1, "its lease was never over"
    assert overrun.knocks.granted_at_ms >= span["ended_ms"]


def test_work_that_overruns_its_lease_and_fails_keeps_its_own_error(
    failure_runs: ScenarioRuns,
) -> None:
    overrun = failure_runs.only("failing overrun")
    assert (overrun.ended.status, overrun.ended.error) == ("FAILED", "CardDeclined")
    failed_at_ms = int(overrun.ended.cause or "")
    assert len(overrun.knocks.leases_seen) > 1, "its lease was never over"
    assert overrun.knocks.granted_at_ms >= failed_at_ms


def test_a_holder_whose_execution_no_one_knows_is_robbed_when_its_lease_is_over(
    failure_runs: ScenarioRuns,
) -> None:
    robbed = failure_runs.only("robbed")
    span, release = robbed.ended.output["work"], robbed.ended.output["release"]
    # None, where a busy machine knocked for the first time when the lease was over.
    assert len(robbed.knocks.leases_seen) <= 1, "its lease was extended"
    assert robbed.knocks.granted_at_ms < span["ended_ms"]
    assert (release["released"], release["reason"]) == (False, "NOT_HELD")
