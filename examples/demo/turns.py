"""What a queue promises beyond exclusion: order, and waiting that costs next to nothing. Pure."""

from itertools import combinations

from examples.demo.checks import Check
from examples.demo.facts import Incident, Role, Run
from examples.demo.handovers import handovers, idle_between, median_idle_ms


def granted_in_order_of_entry(run: Run) -> Check:
    """On every account the waiters got in in the order in which they began to wait."""
    pairs = overtaken = 0
    for account_id in {e.account_id for e in run.executions}:
        entered = sorted(
            (waited.start_ms, grant.answered_at_ms)
            for e in run.on(account_id)
            if (waited := e.waited) and (grant := e.grant)
        )
        for (_, earlier_ms), (_, later_ms) in combinations(entered, 2):
            pairs += 1
            overtaken += later_ms < earlier_ms
    return Check(
        claim="waiters got in in the order of entry",
        passed=pairs > 0 and not overtaken,
        evidence=f"{pairs} pairs compared, {overtaken} times someone was overtaken",
    )


def waiting_cost_nothing(run: Run, *, fallback_seconds: int) -> Check:
    """An execution that waited paid one transition more for each fallback period, and no others."""
    waits = [(e, e.waited.seconds) for e in run.executions if e.waited]
    cheapest = min((e.transitions for e, _ in waits), default=0)
    longest = max((seconds for _, seconds in waits), default=0.0)
    dear = [e for e, s in waits if e.transitions > cheapest + s // fallback_seconds]
    evidence = f"{cheapest} transitions, also after {longest:.1f} s of waiting"
    if dear:
        evidence = f"{len(dear)} paid for more than the {cheapest} transitions of the cheapest"
    return Check(
        claim="waiting cost no state transitions",
        passed=bool(handovers(run.executions)) and not dear,
        evidence=evidence,
    )


def less_idle_than(run: Run, other: Run) -> Check:
    """Between two holders the lock was idle for less time than in the other run."""
    mine, theirs = median_idle_ms(run.executions), median_idle_ms(other.executions)
    evidence = "a lock never changed hands"
    if mine is not None and theirs is not None:
        evidence = f"median {mine:.0f} ms, with polling {theirs:.0f} ms"
    return Check(
        claim="the lock was idle between holders for less time than with polling",
        passed=mine is not None and theirs is not None and mine < theirs,
        evidence=evidence,
    )


def woken(incident: Incident) -> Check:
    """The next one asked once, while the broken one held the lock, and was then told."""
    asked = len(incident.following.calls_of(Role.ACQUIRE))
    idle = idle_between(incident.broken, incident.following)
    after = "did not wait and get in" if idle is None else f"in {idle} after the broken one"
    return Check(
        claim=f"{incident.title}: the next one was woken and did not have to ask again",
        passed=idle is not None and asked == 1,
        evidence=f"asked {asked} {'time' if asked == 1 else 'times'}, {after}",
    )
