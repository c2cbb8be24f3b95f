"""The demo's verdicts on what went wrong on purpose, computed from recorded facts. Pure."""

from examples.demo.checks import Check
from examples.demo.facts import Incident, Role


def error_kept(incident: Incident, error: str) -> Check:
    """The task's error left the guard with its own name, after the lock was released."""
    broken = incident.broken
    released_ms = broken.released_at_ms
    in_time = released_ms is not None and released_ms <= broken.ended_at_ms
    return Check(
        claim="a failing task keeps its error's name and the lock is released first",
        passed=broken.status == "FAILED" and broken.error == error and in_time,
        evidence=f"{broken.status} with {broken.error}, "
        + ("released before it ended" if in_time else "NOT released before it ended"),
    )


def stopped_at_work(incident: Incident) -> Check:
    """The stopped execution held the lock and its task was under way, so nothing released it."""
    broken = incident.broken
    at_work = any(call.answered_at_ms is None for call in broken.calls_of(Role.CHARGE))
    passed = broken.status == "ABORTED" and at_work and broken.grant is not None
    held = f"{broken.held.seconds:.1f} s after it got the lock" if broken.held else "without a lock"
    return Check(
        claim="an execution was stopped in the middle of its work",
        passed=passed and not broken.calls_of(Role.RELEASE),
        evidence=f"{broken.status} {held}, {'task under way' if at_work else 'no task under way'}",
    )


def freed_in_time(incident: Incident, *, lease_seconds: int, tolerance_seconds: int) -> Check:
    """The next execution got the lock when lease and tolerance of the broken one were over.

    It had to wait while the broken one held the lock; nobody who asked after that moment was
    refused; and it was in by then, but for the one wait it had been told to sleep through.
    """
    claim = f"{incident.title}: the lock is free again within its lease"
    gone, held = incident.broken.grant, incident.broken.held
    waited, came = incident.following.waited, incident.following.grant
    if gone is None or held is None or waited is None or came is None:
        missing = "broken one never held the lock" if gone is None else "next one never got it"
        return Check(claim=claim, passed=False, evidence=f"the {missing}")
    if not waited.start_ms < held.end_ms < came.answered_at_ms:
        evidence = "no evidence: the next one did not wait while the broken one held the lock"
        return Check(claim=claim, passed=False, evidence=evidence)
    deadline_ms = gone.acquired_at_ms + (lease_seconds + tolerance_seconds) * 1000
    refusals = incident.following.refusals
    late = [call for call in refusals if call.asked_at_ms > deadline_ms]
    last_wait = float((refusals[-1].answer or {})["retry_after_seconds"]) if refusals else 0.0
    after = (came.answered_at_ms - held.end_ms) / 1000
    allowed = (deadline_ms - held.end_ms) / 1000
    # One second for the way from the end of the wait to the answer.
    in_time = after <= allowed + last_wait + 1
    return Check(
        claim=claim,
        passed=in_time and not late,
        evidence=f"lease and tolerance were over after {allowed:.1f} s, the next one was in after "
        f"{after:.1f} s (its last wait: {last_wait:.0f} s), {len(late)} late refusals",
    )
