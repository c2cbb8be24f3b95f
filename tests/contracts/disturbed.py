"""Operations in worlds of their own, undisturbed, or with a fault at one of their requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from botocore.exceptions import ClientError

from fairlock.aws.retry import was_not_written
from fairlock.errors import LockStoreUnavailable
from fairlock.guarded.guarded_writes import GuardedWrites
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.model import ForceReleaseRequest, Grant
from fairlock.protocol.pace import PaceRequest
from fairlock.store.turns import KnownPaces, Turn
from fairlock.testing import ManualClock
from fairlock.testing.fake_table import MemoryTable
from tests.support import LOCK, TABLE, acquire, heartbeat, release
from tests.support.faulty_table import (
    REQUESTS,
    Fault,
    FaultyTable,
    Killed,
    client_error,
    fault,
    kill,
    lost_reply,
    refusal,
    repeat,
)
from tests.support.store_bench import OTHER_RUN, RUN, Bench, workflow_heartbeat

U, G, Q, T = "update_item", "get_item", "query", "transact_write_items"
LEDGER: Final = {"pk": {"S": "LEDGER"}, "sk": {"S": "anna"}}
WHO: Final = {"requested_by": "olga", "reason": "a test"}


class World(Bench):
    """A lock table in memory, a ledger in it, and the client whose requests can fail."""

    def __init__(self) -> None:
        super().__init__(MemoryTable(), ManualClock())
        self.faulty = FaultyTable(self.client)
        self.mine: Any = None

    @property
    def ours(self) -> Any:  # noqa: ANN401 - the operations
        """The store whose requests can fail."""
        return self.store(self.faulty)

    def token(self) -> int:
        """That of the youngest grant, as it is stored."""
        return max(holder.fencing_token for holder in self.store().read_state(LOCK).holders)

    def sight(self) -> dict[str, object]:
        """What others see: who holds, who waits, what is left to be freed, and what is written."""
        state = self.store().read_state(LOCK)
        items = self.client.items
        return {
            "holders": [holder.owner_name for holder in state.holders],
            "held": state.held,
            "ceiling": state.ceiling and state.ceiling.limit,
            "waiters": self.waiters(),
            "claims": sorted(claim["sk"]["S"] for claim in self.claims()),
            "ledger": items.get(("LEDGER", "anna"), {}).get("balance"),
        }


def answer_of(found: object) -> object:
    """What of an answer must not depend on faults."""
    return type(found).__name__, getattr(found, "name", None), getattr(found, "reason", None)


# The operations, each with what comes before it and with its requests when nothing fails.


@dataclass(frozen=True)
class Operation:
    """One call of the product.

    Attributes:
        call: the call, over the world's faulty table.
        requests: what it sends if nothing fails.
        before: what has happened before.
        tells: whether a waiter to which it hands over is told in spite of a fault.
    """

    call: Callable[[World], object]
    requests: list[str]
    before: Callable[[World], object] = lambda _: None
    tells: bool = True


def held(world: World) -> None:
    world.mine = world.grant("anna")


def held_by_a_workflow(world: World) -> None:
    world.mine = world.grant("anna", execution_arn=RUN)


def kept_alive(world: World) -> None:
    held_by_a_workflow(world)
    world.store().keep_alive(workflow_heartbeat("anna"))


def waited_for(world: World) -> None:
    held(world)
    world.wait("ben", execution_arn=OTHER_RUN)


def waited_for_by_the_dead(world: World) -> None:
    held(world)
    world.wait("ben", task_token=None, execution_arn=None, waiter_timeout_ms=1_000)
    world.clock.advance(30)


def left_behind(world: World) -> None:
    world.grant("carl", lease_ms=1_000)
    world.clock.advance(10)


def waits_itself(world: World) -> None:
    world.grant("holder")
    world.wait("anna")


def ended(world: World) -> None:
    held_by_a_workflow(world)
    world.wait("zita")
    world.wait("ben", execution_arn=OTHER_RUN)
    world.end()


def reaped_once(world: World) -> None:
    ended(world)
    world.reap()


def paused(world: World) -> None:
    world.store().change_ceiling(SetCeilingRequest(lock_name=LOCK, limit=0, **WHO))
    world.wait("ben", execution_arn=OTHER_RUN)


def change_ceiling(limit: int | None) -> Callable[[World], object]:
    request = SetCeilingRequest(lock_name=LOCK, limit=limit, **WHO)
    return lambda world: world.ours.change_ceiling(request)


def force(world: World) -> object:
    token = world.mine.fencing_token
    request = ForceReleaseRequest(lock_name=LOCK, fencing_token=token, **WHO)
    return world.ours.force_release(request)


def reserve(world: World) -> object:
    """A slot an hour: who reserved twice would be refused by itself."""
    if not isinstance(world.mine, Turn):
        asked = PaceRequest(
            name="vendor", reservation_id="reservation-anna", interval_us=3600 * 10**6
        )
        world.mine = Turn(asked, KnownPaces())
    return world.mine.reserve(world.ours.context)


DEPOSIT: Final[Any] = {
    "Update": {
        "TableName": "ledger",
        "Key": LEDGER,
        "UpdateExpression": "ADD #balance :amount",
        "ExpressionAttributeNames": {"#balance": "balance"},
        "ExpressionAttributeValues": {":amount": {"N": "1"}},
    }
}


def write(world: World, *, releases: bool, token: str | None = "one") -> None:
    if isinstance(world.mine, Grant):
        world.mine = GuardedWrites(
            world.faulty,  # type: ignore[arg-type]  # replaces a client
            table_name=TABLE,
            lock_name=LOCK,
            owner_id=world.mine.owner_id,
            fencing_token=world.mine.fencing_token,
            context=world.ours.context,
        )
    world.mine.transact_write([DEPOSIT], release=releases, token=token)


WORKFLOW: Final = {"execution_arn": RUN}
OPERATIONS: Final[dict[str, Operation]] = {
    "acquire": Operation(lambda w: w.ours.acquire(acquire("anna")), [U]),
    "acquire for a workflow": Operation(
        lambda w: w.ours.acquire(acquire("anna", **WORKFLOW)), [U, U]
    ),
    "acquire of a lock whose holder died": Operation(
        lambda w: w.ours.acquire(acquire("anna")), [U, U], left_behind
    ),
    "acquire of a held lock": Operation(lambda w: w.ours.acquire(acquire("ben")), [U], held),
    "acquire that joins the queue": Operation(
        lambda w: w.ours.acquire(acquire("ben", waits=True, task_token="ben")), [U, Q, T, U], held
    ),
    "acquire that joins for a workflow": Operation(
        lambda w: w.ours.acquire(acquire("ben", waits=True, task_token="ben", **WORKFLOW)),
        [U, U, Q, T, U],
        held,
    ),
    "heartbeat": Operation(lambda w: w.ours.heartbeat(heartbeat("anna")), [U], held),
    "heartbeat of a workflow": Operation(
        lambda w: w.ours.keep_alive(workflow_heartbeat("anna")), [U, U], held_by_a_workflow
    ),
    "release": Operation(lambda w: w.ours.release(release("anna")), [U], held),
    "release by a workflow": Operation(
        lambda w: w.ours.release(release("anna", **WORKFLOW)), [U, U], held_by_a_workflow
    ),
    "release of kept-alive work": Operation(
        lambda w: w.ours.release(release("anna", keep_alive=True, **WORKFLOW)),
        [U, U, U],
        kept_alive,
    ),
    "release that hands over": Operation(
        lambda w: w.ours.release(release("anna")), [U, Q, T], waited_for
    ),
    "release behind which no one lives": Operation(
        lambda w: w.ours.release(release("anna")), [U, Q, T, U], waited_for_by_the_dead
    ),
    "giving up": Operation(
        lambda w: w.ours.release(release("anna", waits=True, **WORKFLOW)),
        [U, U, T, G, Q, U],
        waits_itself,
    ),
    "release by force": Operation(force, [G, U], held),
    "release by force that hands over": Operation(force, [G, Q, T], waited_for),
    # A pass that is taken up may hand the lock to a waiter of the dead, and frees it again.
    "first pass of the reaper": Operation(
        lambda w: w.reap(client=w.faulty), [], ended, tells=False
    ),
    "second pass of the reaper": Operation(
        lambda w: w.reap(client=w.faulty, second=True), [], reaped_once
    ),
    "pause": Operation(change_ceiling(0), [G, U], held),
    "resume that hands over": Operation(change_ceiling(None), [G, Q, T], paused),
    "slot of a pace": Operation(reserve, [U]),
    "guarded write": Operation(partial(write, releases=False), [T], held),
    "guarded write with release": Operation(partial(write, releases=True), [T], held),
    # A repeat that commits the hand-off itself tells no one: the waiter learns it when it asks.
    "guarded write that hands over": Operation(
        partial(write, releases=True), [T, Q, T], waited_for, tells=False
    ),
}


# The faults, each of one request or of all from there on.


def throttled(number: int) -> Fault:
    """By botocore, after a first sending that was done and whose reply got lost."""
    return fault(client_error("ThrottlingException"), number, when="after")


FAULTS: Final[dict[str, Callable[[int], Fault]]] = {
    "never arrived": lambda number: fault(lost_reply(), number),
    "lost reply": lambda number: fault(lost_reply(), number, when="after"),
    "outage": lambda number: fault(lost_reply(), range(number, 999)),
    "outage of replies": lambda number: fault(lost_reply(), range(number, 999), when="after"),
    "5xx": lambda number: fault(client_error("InternalServerError", 500), number),
    "throttled for long": lambda number: fault(refusal("ThrottlingException"), range(number, 999)),
    "throttled after it was done": throttled,
    "killed before": kill,
    "killed after": lambda number: kill(number, is_done=True),
    "cancelled": lambda number: fault(KeyboardInterrupt(), number, when="after"),
    "sent twice by botocore": lambda _: repeat(),
}
ENDS: Final = {"outage of replies", "killed after", "cancelled"}
"""After these no code goes on that could tell a waiter: it finds its grant when it asks again."""


@dataclass(frozen=True)
class Outcome:
    """How a call ended, what others see after it, what it sent, and whom it told.

    `told` also says whether others still wait, which a hand-off made twice may say too long.
    """

    answer: object
    sight: dict[str, object]
    told: tuple[set[str], bool]
    calls: list[str]


def outcome_of(operation: Operation, *plan: Fault) -> Outcome:
    """Makes a call under a plan; and again without faults, as its caller does after an error."""
    world = World()
    operation.before(world)
    world.faulty.will(*(replace(each, of=REQUESTS) for each in plan))
    answers = list[object]()
    try:
        answers.append(operation.call(world))
    except (LockStoreUnavailable, Killed, KeyboardInterrupt):
        assert plan, "nothing failed"
    except ClientError as error:
        if not was_not_written(error):
            raise
    calls = list(world.faulty.calls)
    world.faulty.will()
    if not answers or plan:
        answers.append(operation.call(world))
    for answer in answers:
        if isinstance(answer, Grant):
            assert answer.fencing_token == world.token(), "it is told another one than is stored"
    tokens = {*world.pushed, *(token for token, _ in world.workflows.ended)}
    told = tokens, world.store().read_state(LOCK).contended
    [ended] = {answer_of(answer) for answer in answers}
    return Outcome(ended, world.sight(), told, calls)


def verify(name: str, disturb: Callable[[int], Fault], *, tells: bool = True) -> None:
    """Puts a fault at each request in turn."""
    operation = OPERATIONS[name]
    expected = outcome_of(operation)
    for number in range(1, len(expected.calls) + 1):
        found = outcome_of(operation, disturb(number))
        assert (found.answer, found.sight) == (expected.answer, expected.sight), number
        if tells and operation.tells:
            assert found.told == expected.told, number
