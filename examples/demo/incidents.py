"""The demo's verdicts on what went wrong on purpose, computed from recorded facts. Pure."""

from examples.demo.checks import Check
from examples.demo.facts import Call, Incident, Limits, Role

PAUSE_SECONDS = 1
"""Step Functions pauses for a second before it repeats a call that timed out."""
WAY_SECONDS = 1
"""From the end of a wait to the grant's arrival."""


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


def freed_in_time(incident: Incident, limits: Limits) -> Check:
    """The next one got in when lease and tolerance of the broken one were over, at its next call.

    It had to wait while the broken one held the lock; whoever asked after that moment was let in at
    once; and it asked within a fallback period of it.
    """
    claim = f"{incident.title}: the next one is in within lease, tolerance and a fallback period"
    gone, held = incident.broken.grant, incident.broken.held
    waited, came = incident.following.waited, incident.following.grant
    if gone is None or held is None or waited is None or came is None:
        missing = "broken one never held the lock" if gone is None else "next one never got it"
        return Check(claim=claim, passed=False, evidence=f"the {missing}")
    if not waited.start_ms < held.end_ms < came.answered_at_ms:
        evidence = "no evidence: the next one did not wait while the broken one held the lock"
        return Check(claim=claim, passed=False, evidence=evidence)
    free_ms = gone.acquired_at_ms + limits.lapse_ms
    asked = incident.following.calls_of(Role.ACQUIRE)
    late = [call for call in asked if call.asked_at_ms > free_ms and _sent_away(call)]
    after = (came.answered_at_ms - held.end_ms) / 1000
    lapsed = (free_ms - held.end_ms) / 1000
    return Check(
        claim=claim,
        passed=after <= lapsed + limits.fallback_seconds + PAUSE_SECONDS + WAY_SECONDS and not late,
        evidence=f"in after {after:.1f} s (lease and tolerance were over after {lapsed:.1f} s, "
        f"fallback {limits.fallback_seconds} s), {len(late)} told to wait after that",
    )


def _sent_away(call: Call) -> bool:
    """Whether this question for the lock ended in waiting. An error is no answer to it."""
    return call.error == "States.Timeout" or bool(call.answer and not call.answer["acquired"])
