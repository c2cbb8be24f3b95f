"""What may go wrong in a run, each with its share or its span. The sum of all is the weather."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.clocks import ClockErrors


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Between a process and DynamoDB; shares are of requests.

    Attributes:
        lost_requests: never arrive.
        lost_replies: are done, and no one hears of it.
        late_replies: come late, by up to `late_seconds`.
        late_requests: arrive late, by up to `late_seconds`.
        copies: land once more, up to `late_seconds` after the first time.
        late_seconds: see above.
        front_ends: seconds by which the front ends' clocks differ from AWS's time, either way.
    """

    lost_requests: float = 0.0
    lost_replies: float = 0.0
    late_replies: float = 0.0
    late_requests: float = 0.0
    copies: float = 0.0
    late_seconds: float = 10.0
    front_ends: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """In DynamoDB itself.

    Attributes:
        server_errors: the share of requests that are answered with a 500; half of them were done.
        throttles: the share that is refused, beside those above the units of a partition.
        partitions: how many partitions the table has; a new one has 4.
        write_units: of a partition, a second.
        read_units: same.
        slow_units: those of partition 0, if it has fewer, of either kind.
        outages: spans, in seconds from the beginning, in which no request is answered.
    """

    server_errors: float = 0.0
    throttles: float = 0.0
    partitions: int = 4
    write_units: int = 1_000
    read_units: int = 3_000
    slow_units: int | None = None
    outages: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """What happens to client processes; each span is drawn again, around its mean.

    Attributes:
        killed: the share that dies in each hour; a fresh process goes on with its turns.
        suspended: the share that is suspended in each hour.
        suspended_seconds: for how long, at most.
    """

    killed: float = 0.0
    suspended: float = 0.0
    suspended_seconds: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All of them."""

    machines: Machines = field(default_factory=Machines)
    network: Network = field(default_factory=Network)
    database: Database = field(default_factory=Database)
    clocks: ClockErrors = field(default_factory=lambda: ClockErrors(wall_seconds=0.05, drift=1e-4))
