"""The demo's verdicts on what went wrong on purpose, computed from recorded facts. Pure."""

from examples.demo.checks import Check
from examples.demo.facts import Incident, Interval, Limits, Role


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


def handed_on(incident: Incident, limits: Limits) -> Check:
    """The broken one's lock was pushed to the next one while its lease was not over yet.

    The next one waited while the broken one held the lock, asked once, and was in before the lease
    ended. So neither the lease nor a question of its own can have let it in: someone freed the
    lock on behalf of the broken one, which released nothing.
    """
    claim = (
        f"{incident.title}: its lock was handed on before its lease was over, "
        "and the next one did not have to ask again"
    )
    gone, held = incident.broken.grant, incident.broken.held
    waited, came = incident.following.waited, incident.following.grant
    if gone is None or held is None or waited is None or came is None:
        missing = "broken one never held the lock" if gone is None else "next one never got it"
        return Check(claim=claim, passed=False, evidence=f"the {missing}")
    if not waited.start_ms < held.end_ms < came.answered_at_ms:
        evidence = "no evidence: the next one did not wait while the broken one held the lock"
        return Check(claim=claim, passed=False, evidence=evidence)
    asked = len(incident.following.calls_of(Role.ACQUIRE))
    after = Interval(start_ms=held.end_ms, end_ms=came.answered_at_ms)
    lease_ends_at_ms = gone.acquired_at_ms + limits.lease_seconds * 1000
    lapsed = (gone.acquired_at_ms + limits.lapse_ms - held.end_ms) / 1000
    return Check(
        claim=claim,
        passed=came.answered_at_ms < lease_ends_at_ms and asked == 1,
        evidence=f"in {after} after the stop, asked {asked} {'time' if asked == 1 else 'times'} "
        f"(lease and tolerance would have taken {lapsed:.1f} s, "
        f"and a question of its own up to {limits.fallback_seconds} s more)",
    )
