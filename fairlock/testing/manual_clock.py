"""Time for tests: a clock that is moved by hand, and an event loop that jumps to its next timer."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from fairlock.client.arguments import refuse, require_callable, require_seconds
from fairlock.clock import Seconds, in_seconds
from fairlock.errors import InvalidRequest

START_MS: Final = 1_900_000_000_000
"""The first moment: 17 March 2030, 17:46:40 UTC."""
_SHORTEST_STEP_SECONDS: Final = 0.001
_SHORTEST_TIMER_SECONDS: Final = 1e-6
_MOST_SECONDS: Final = 1_000_000_000
_LONGEST_SECONDS: Final = 24 * 3600.0
"""Of a coroutine, by default. Heartbeats of one lock go through a day in a few seconds."""


def checked_seconds(length: Seconds) -> float:
    """Refuses NaN, by which no lease would ever end, and a time that goes back."""
    seconds = in_seconds(length)
    require_seconds("seconds", seconds, least=0, most=_MOST_SECONDS)
    return seconds


class Timed(Protocol):
    """Something that happens by itself as time passes, such as heartbeats."""

    def next_at(self) -> float:
        """Reading of the clock at which something is due; `math.inf` for never."""

    def do_due(self) -> None:
        """Does what is due."""


class ManualClock:
    """A clock for one thread of tests. Nothing sleeps.

    Time passes by `advance`, and as long as a client waits: `acquire` behind another holder takes
    no longer in a test than a request. On the way happens what was planned with `at`, and the
    heartbeats of all clients of this clock are sent, each at its moment.

    Not guaranteed: anything about threads. For threads give a `LockClient` the table, and let it
    use its own clock: `LockClient("locks", client=FakeTable())`.

    Raises:
        InvalidRequest: the seconds are no number, or below 0; an action is no function.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._plans: list[tuple[float, Callable[[], object]]] = []
        self._timed: list[Timed] = []

    def advance(self, seconds: Seconds) -> None:
        """Lets time pass. Heartbeats are sent meanwhile, and what was planned happens."""
        self._pass(checked_seconds(seconds), lambda: False)

    def stall(self, seconds: Seconds) -> None:
        """Lets time pass in which nothing of this process runs, as if it had been frozen.

        Leases shorter than the stall are over then: so a test makes a holder lose its lock.
        """
        self._now += checked_seconds(seconds)

    def at(self, seconds: Seconds, action: Callable[[], object]) -> None:
        """Plans something for so many seconds from now, such as another holder's release.

        It happens in the middle of the call that lets the time pass; what it raises leaves that.
        """
        require_callable("action", action)
        self._plans.append((self._now + checked_seconds(seconds), action))
        self._plans.sort(key=lambda plan: plan[0])

    def add(self, timed: Timed) -> None:
        """Makes something happen as time passes; the fake clients call this."""
        self._timed.append(timed)

    def wall_ms(self) -> int:
        """Epoch milliseconds."""
        return START_MS + round(self._now * 1000)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._now

    def wait(self, seconds: float) -> None:
        """Lets that much time pass."""
        self._pass(seconds, lambda: False)

    def alarm(self) -> ManualAlarm:
        """A wait on this clock."""
        return ManualAlarm(self._pass)

    def _pass(self, seconds: float, is_enough: Callable[[], bool]) -> None:
        ends_at = self._now + max(0.0, seconds)
        self._do_due()
        while self._now < ends_at and not is_enough():
            moments = [timed.next_at() for timed in self._timed]
            moments += [moment for moment, _ in self._plans[:1]]
            moment = min(moments, default=math.inf)
            self._now = min(max(moment, self._now + _SHORTEST_STEP_SECONDS), ends_at)
            self._do_due()

    def _do_due(self) -> None:
        for timed in list(self._timed):
            timed.do_due()
        while self._plans and self._plans[0][0] <= self._now:
            _, action = self._plans.pop(0)
            action()


class ManualAlarm:
    """A wait on a clock that is moved by hand; ends as soon as what happens on the way rings it."""

    def __init__(self, let_pass: Callable[[float, Callable[[], bool]], None]) -> None:
        self._let_pass = let_pass
        self._rung = False

    def wait(self, seconds: float) -> None:
        """See `Alarm`."""
        if not self._rung:
            self._let_pass(seconds, lambda: self._rung)
        self._rung = False

    def ring(self) -> None:
        """See `Alarm`."""
        self._rung = True


_T = TypeVar("_T")
_NOTHING_LEFT = (
    "nothing will ever happen again in this event loop: every task waits for something that no "
    "task and no timer does"
)
_TOO_LONG = (
    "{:g} s of virtual time have passed, and the coroutine has not returned: most likely it waits "
    "for something that never happens, while timers, such as the heartbeats of a lock that it "
    "holds, go on for ever; if it needs more time, pass run_in_virtual_time(…, longest=…)"
)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for the next timer it makes it that late."""

    def __init__(self, longest: float) -> None:
        super().__init__()
        self.now = 0.0
        self._longest = longest
        self._ends_at = longest

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError(_NOTHING_LEFT)
        if self.now + timeout > self._ends_at:
            self._ends_at = self.now + self._longest  # Cancelled tasks clean up after this.
            raise RuntimeError(_TOO_LONG.format(self._longest))
        self.now += timeout
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in virtual time: `asyncio.sleep(3600)` is over at once.

    Not for sockets, subprocesses and threads: time does not wait for these. After `longest` virtual
    seconds the loop takes its coroutine for one that hangs.
    """

    def __init__(self, longest: float = math.inf) -> None:
        self._jumping = _JumpingSelector(longest)
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumping.now

    def call_later(  # type: ignore[override]  # asyncio's own arguments, whatever they are
        self,
        delay: float,
        *args: Any,  # noqa: ANN401 - asyncio's own
        **options: Any,  # noqa: ANN401 - asyncio's own
    ) -> asyncio.TimerHandle:
        """As asyncio's, but a timer to come moves the time.

        The rest of a wait may be shorter than a step of a float, and would never be over.
        """
        late = delay if delay <= 0 else max(delay, _SHORTEST_TIMER_SECONDS)
        return super().call_later(late, *args, **options)

    def block(self, seconds: float) -> None:
        """Does what code does that blocks the loop: time passes, and no task runs."""
        self._jumping.now += seconds


def run_in_virtual_time(
    main: Coroutine[Any, Any, _T], *, longest: Seconds = _LONGEST_SECONDS
) -> _T:
    """Runs a coroutine like `asyncio.run`, in an event loop of its own that does not wait.

    Args:
        main: the coroutine.
        longest: virtual seconds within which it must return; a day by default. Held locks have
            heartbeats for ever, so only this ends a wait for something that never happens.

    Raises:
        InvalidRequest: it is no coroutine, or `longest` is no number of seconds above 0.
        RuntimeError: in a real loop the test would hang.
    """
    try:
        seconds = in_seconds(longest)
        require_seconds("longest", seconds, least=_SHORTEST_STEP_SECONDS, most=_MOST_SECONDS)
    except InvalidRequest:
        if asyncio.iscoroutine(main):
            main.close()  # Else Python complains that it was never awaited.
        raise
    if not asyncio.iscoroutine(main):
        refuse("main", "must be a coroutine: call the function, as in main()", main)
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(seconds)) as runner:
        return runner.run(main)
