"""The picture as data: which execution waited and worked when. Pure.

Times are seconds from the start of a panel.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from examples.demo.bill import idle, spread
from examples.demo.facts import Account, Execution, Incident, Interval, Role, Run, Story
from examples.demo.handovers import handovers, idle_between
from examples.demo.ledger import statement
from examples.demo.sweep import overlaps

TOKEN_DIGITS = 4


class Kind(StrEnum):
    """What a stretch of time means; ORPHANED: stopped, but its lock is not handed on yet."""

    WAITING = "waiting"
    INSIDE = "inside"
    ORPHANED = "orphaned"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A stretch of a lane."""

    kind: Kind
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One execution: its bars, the label on its solid bar, and what became of it."""

    name: str
    bars: tuple[Bar, ...]
    label: str = ""
    verdict: str = ""
    bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Group:
    """The lanes of one account.

    `crowded` are the stretches with more than one inside, `idle` those in which others waited and
    no one was inside.
    """

    account_id: str
    lanes: tuple[Lane, ...]
    note: str
    bad: bool
    crowded: tuple[tuple[float, float], ...] = ()
    idle: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One drawing with its own time axis."""

    title: str
    subtitle: str
    groups: tuple[Group, ...]

    @property
    def span(self) -> float:
        """Seconds from the first start to the last end."""
        return max((b.end for g in self.groups for x in g.lanes for b in x.bars), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The runs side by side, and below them what went wrong on purpose."""

    runs: tuple[Panel, ...]
    incidents: Panel


def picture(story: Story) -> Picture:
    return Picture(
        runs=tuple(run_panel(run) for run in story.runs),
        incidents=incident_panel(story),
    )


def run_panel(run: Run) -> Panel:
    zero_ms = min((e.started_at_ms for e in run.executions), default=0)
    return Panel(
        title=run.title,
        subtitle=_costs(run),
        groups=tuple(_account_group(run, account, zero_ms) for account in run.accounts),
    )


def incident_panel(story: Story) -> Panel:
    incidents = (story.failed, story.stopped)
    limits = story.limits
    return Panel(
        title="When something goes wrong",
        subtitle=f"guard with a queue: lease {limits.lease_seconds} s, clock tolerance "
        f"{limits.clock_tolerance_seconds} s, who waits asks again every "
        f"{limits.fallback_seconds} s",
        groups=tuple(_incident_group(i, limits.lapse_ms) for i in incidents),
    )


def _costs(run: Run) -> str:
    between = f"{idle(run)} between holders" if idle(run) else "no lock"
    transitions = spread(run, lambda b: b.transitions).split(" (", 1)[0]
    return f"{between} · {transitions} transition{'s' if transitions != '1' else ''}"


def _inside(run: Run, execution: Execution) -> Interval | None:
    return execution.held if run.guarded else execution.worked


def _account_group(run: Run, account: Account, zero_ms: int) -> Group:
    books = statement(run, account)
    executions = sorted(
        run.on(account.account_id),
        key=lambda e: i.start_ms if (i := _inside(run, e)) else e.ended_at_ms,
    )
    lanes = []
    for execution in executions:
        lost = execution.name in books.lost
        lanes.append(
            Lane(
                name=execution.name.removeprefix(f"{account.account_id}-"),
                bars=_bars(execution, _inside(run, execution), zero_ms),
                label=_token(execution),
                verdict="lost" if lost else "",
                bad=lost,
            )
        )
    wrong = account.closing != books.expected
    found = overlaps(executions, lambda e: _inside(run, e))
    return Group(
        account_id=account.account_id,
        lanes=tuple(lanes),
        note=f"balance {account.closing}, " + (f"not {books.expected}" if wrong else "correct"),
        bad=wrong,
        crowded=_merged([_seconds(o.interval, zero_ms) for o in found]),
        idle=_merged([_seconds(h.idle, zero_ms) for h in handovers(executions)]),
    )


def _incident_group(incident: Incident, limit_ms: int) -> Group:
    """Two lanes whose time begins with the broken execution, whatever ran before.

    An execution that ended without a release keeps its lock until the next one is in.
    """
    broken, following = incident.broken, incident.following
    zero_ms = broken.started_at_ms
    bars = _bars(broken, broken.held, zero_ms)
    idle_time = idle_between(broken, following)
    note = f"next one in after {idle_time}" if idle_time else "no one waited and got in"
    if idle_time and broken.grant and broken.released_at_ms is None:
        start, end = _seconds(idle_time, zero_ms)
        bars = (*bars, Bar(kind=Kind.ORPHANED, start=start, end=end))
        lapsed = (broken.grant.acquired_at_ms + limit_ms - idle_time.start_ms) / 1000
        note += f" (by its lease: {lapsed:.1f} s)"
    return Group(
        account_id=broken.account_id,
        lanes=(
            Lane(
                name=broken.name,
                bars=bars,
                label=_token(broken),
                verdict=broken.error if broken.status == "FAILED" and broken.error else "stopped",
                bad=True,
            ),
            Lane(
                name=following.name,
                bars=_bars(following, following.held, zero_ms),
                label=_token(following),
            ),
        ),
        note=note,
        bad=idle_time is None,
        idle=(_seconds(idle_time, zero_ms),) if idle_time else (),
    )


def _bars(execution: Execution, inside: Interval | None, zero_ms: int) -> tuple[Bar, ...]:
    asked = execution.calls_of(Role.ACQUIRE)
    bars = []
    if asked and (waited := execution.waited):
        start, end = _seconds(waited, zero_ms)
        bars.append(Bar(kind=Kind.WAITING, start=start, end=end))
    if inside:
        start, end = _seconds(inside, zero_ms)
        bars.append(Bar(kind=Kind.INSIDE, start=start, end=end))
    return tuple(bars)


def _token(execution: Execution) -> str:
    """The last digits: tokens of one lock differ there, and whole ones fill no bar."""
    return f"…{execution.grant.fencing_token % 10**TOKEN_DIGITS:04d}" if execution.grant else ""


def _seconds(interval: Interval, zero_ms: int) -> tuple[float, float]:
    return (interval.start_ms - zero_ms) / 1000, (interval.end_ms - zero_ms) / 1000


def _merged(stretches: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def account_order(panels: Sequence[Panel]) -> tuple[str, ...]:
    """Every account once, in order of appearance: an account keeps its colour in all panels."""
    return tuple(dict.fromkeys(g.account_id for p in panels for g in p.groups))
