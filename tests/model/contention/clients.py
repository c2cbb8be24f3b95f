"""The clients that contend: what each wants, how far it is, and what it may do next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from fairlock.errors import LockStoreUnavailable
from fairlock.protocol import schema
from fairlock.protocol.ceiling import SetCeilingRequest
from fairlock.protocol.model import (
    AcquireRequest,
    ForceReleaseRequest,
    Grant,
    HeartbeatRequest,
    Holder,
    LockState,
    ReleaseRequest,
    SeenLock,
)
from fairlock.protocol.outcomes import NotHeld, Queued, Refusal, RefusalReason, Released
from fairlock.protocol.schema import number
from fairlock.testing.interpreter import Item
from fairlock.testing.manual_clock import START_MS
from tests.model.numbered_tables import LOCK
from tests.model.replay import time_ms
from tests.support import Operations

LEASE_MS: Final = 10_000
_CALLS_MS: Final = 100
_HOLDER: Final = Holder(
    owner_id="another",
    owner_name="another",
    acquired_at_ms=START_MS,
    expires_at_ms=2 * START_MS,
    lease_ms=LEASE_MS,
    limit=1,
    revision=1,
    fencing_token=1,
)
_BUSY: Final = SeenLock(
    state=LockState(fencing_token=1, held=1, limit=1, contended=True, holders=(_HOLDER,)),
    is_whole=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One acquisition, and what may happen to it. The clients of a model are in order of age.

    Attributes:
        limit: how many permits the lock has, as this client says.
        waits: whether it joins the queue.
        pushed: whether it is told through a task token, as a workflow; else it polls.
        polls: how many fallback polls it makes while it sleeps.
        gives_up: whether it may stop waiting, which cancels.
        heartbeats: how many of them it may send.
        forges: whether it asks with a ticket that it never got, for the first place of all.
        forces: whether it is a person that wants nothing but to release, by force, the oldest
            holder that it sees.
        sets: the ceilings that it sets, one after the other, as an operator who wants nothing else;
            None lifts the ceiling.
        remembers: whether it releases by the lock and the queue as they were when it was told of
            its grant, however long ago.
        supposes_busy: whether it asks as if others held the lock and waited for it.
        says_when: whether it says when it made each call, as a direct caller of the functions may.
        late_call_of: the client whose late call this is: a function at work for no one. It begins
            when a fault has put that call on the wire.
        shared: whether it is a reader.
        version: if it asks for the newest only.
    """

    name: str
    limit: int = 1
    waits: bool = True
    pushed: bool = True
    polls: int = 0
    gives_up: bool = False
    heartbeats: int = 0
    forges: bool = False
    forces: bool = False
    sets: tuple[int | None, ...] = ()
    remembers: bool = False
    supposes_busy: bool = False
    says_when: bool = False
    late_call_of: str = ""
    shared: bool = False
    version: int | None = None

    @property
    def owner_id(self) -> str:
        return f"{self.late_call_of or self.name:->16}"

    @property
    def execution_arn(self) -> str | None:
        return f"execution-of-{self.name}" if self.pushed else None

    @property
    def begins(self) -> Status:
        """How far it is at the beginning; no function is at work for a late call yet."""
        return Status.DEAD if self.late_call_of else Status.IDLE


class Status(Enum):
    """How far a client is."""

    IDLE = "idle"
    ACQUIRING = "acquiring"
    ASLEEP = "asleep"
    WORKING = "working"
    RENEWING = "renewing"
    RELEASING = "releasing"
    CANCELLING = "cancelling"
    SEEING = "seeing who holds"
    FORCING = "releasing another by force"
    LIMITING = "changing the ceiling"
    HAS_LIMITED = "has changed the ceiling"
    DONE = "done"
    NOT_HELD = "told that it does not hold"
    REFUSED = "refused"
    SUPERSEDED = "told that a newer one was granted"
    FENCED = "told that it released before"
    DEAD = "dead"
    ENDLESS = "going round in circles"


OPERATING: Final = {
    Status.ACQUIRING,
    Status.RENEWING,
    Status.RELEASING,
    Status.CANCELLING,
    Status.SEEING,
    Status.FORCING,
    Status.LIMITING,
}
_ONGOING: Final = {Status.IDLE, Status.ASLEEP, Status.WORKING, Status.HAS_LIMITED}
OVER: Final = {*Status} - OPERATING - _ONGOING


class Local(NamedTuple):
    """How far one client is.

    Attributes:
        client: which of the model's clients this is.
        calls: how many acquire calls it began; each has its own task token, as on AWS.
        polls: how many fallback polls are left.
        heartbeats: how many heartbeats are left.
        told: the fencing token that it was told.
        orphaned: whether its workflow is dead, and only the handler is still at work.
        claimed_at: the instant of its first call, which its claim remembers.
        ticket: of its place in the queue, if it polls and was told; else 0.
        remembered: number of the table that it remembers, plus 1; 0 if it remembers none.
        called_at: the instant at which it made the call that it is in, if it says when.
        half_joined: whether its join has happened, and queries do not show its waiter yet.
        answers: numbers of the answers that the operation under way has had.
        instants: when that operation began, and when each answer came; empty if it must yet begin.
    """

    client: int
    status: Status
    calls: int = 0
    polls: int = 0
    heartbeats: int = 0
    told: int = 0
    orphaned: bool = False
    claimed_at: int = 0
    ticket: int = 0
    remembered: int = 0
    called_at: int = 0
    half_joined: bool = False
    answers: tuple[int, ...] = ()
    instants: tuple[int, ...] = ()

    def at(self, status: Status, **changes: Any) -> Local:  # noqa: ANN401 - fields
        if status in OVER:
            changes["remembered"] = 0
        return self._replace(status=status, half_joined=False, answers=(), instants=(), **changes)

    def begun(self, instant: int, *, says_when: bool) -> Local:
        """It begins an operation at this instant."""
        claims = self.status is Status.ACQUIRING and self.calls == 1
        calls = self.status is Status.ACQUIRING and says_when and not self.orphaned
        return self._replace(
            instants=(instant,),
            claimed_at=instant if claims else self.claimed_at,
            called_at=instant if calls else self.called_at,
        )

    def again(self) -> Local:
        """Its reply was lost, or its handler was killed: it begins the operation again."""
        if self.orphaned:
            return self.dead()
        more = 1 if self.status is Status.ACQUIRING else 0
        return self.at(self.status, calls=self.calls + more)

    def dead(self) -> Local:
        return Local(self.client, Status.DEAD)


def beginnings(client: Client, local: Local) -> list[Local]:
    """The operations that a client that is not in the middle of one may begin."""
    match local.status:
        case Status.IDLE if client.forces:
            return [local.at(Status.SEEING)]
        case Status.IDLE | Status.HAS_LIMITED:
            first = Status.LIMITING if client.sets else Status.ACQUIRING
            return [local.at(first, calls=local.calls + 1)]
        case Status.ASLEEP:
            poll = local.at(Status.ACQUIRING, calls=local.calls + 1, polls=local.polls - 1)
            cancel = local.at(Status.CANCELLING)
            return ([poll] if local.polls else []) + ([cancel] if client.gives_up else [])
        case Status.WORKING:
            renew = local.at(Status.RENEWING, heartbeats=local.heartbeats - 1)
            return [local.at(Status.RELEASING)] + ([renew] if local.heartbeats else [])
        case status if status in OPERATING:
            return [local]
        case _:
            return []


def task_token(client: Client, local: Local) -> str | None:
    return f"token-{client.name}-{local.calls}" if client.pushed else None


def claim_of(client: Client, index: int, local: Local) -> Item:
    """The claim that an acquire of this client finds: after the first call, what that has left."""
    if not (client.waits and client.pushed):
        return {}
    first_ms = time_ms(local.claimed_at) + offset_ms(index, 1)
    place: Item = {schema.ENTERED_AT_MS: number(first_ms)}
    return place if local.calls == 1 else {**place, schema.REVISION: number(local.calls - 1)}


def offset_ms(index: int, calls: int) -> int:
    """When a client's call comes within an epoch; the first calls are in the order of age."""
    return index * _CALLS_MS + calls


def operate(
    client: Client, local: Local, store: Operations, remembered: SeenLock | None = None
) -> object:
    """The real operation that this client is in."""
    owner_id = client.owner_id
    ticket = 1 if client.forges else local.ticket or None
    match local.status:
        case Status.ACQUIRING:
            acquisition = AcquireRequest(
                lock_name=LOCK,
                owner_id=owner_id,
                owner_name=client.name,
                lease_ms=LEASE_MS,
                limit=client.limit,
                shared=client.shared,
                execution_arn=client.execution_arn,
                ticket=ticket,
                called_at_ms=time_ms(local.called_at) if client.says_when else None,
                waits=client.waits,
                task_token=task_token(client, local) if client.waits else None,
                only_newest=client.version,
            )
            return store.acquire(acquisition, seen=_BUSY if client.supposes_busy else None)
        case Status.RENEWING:
            return store.heartbeat(
                HeartbeatRequest(lock_name=LOCK, owner_id=owner_id, lease_ms=LEASE_MS)
            )
        case Status.SEEING:
            return store.read_state(LOCK)
        case Status.FORCING:
            return store.force_release(ForceReleaseRequest(fencing_token=local.told, **_BY_OLGA))
        case Status.LIMITING:
            limit = client.sets[local.calls - 1]
            store.change_ceiling(SetCeilingRequest(limit=limit, **_BY_OLGA))
            return None
        case _:
            request = ReleaseRequest(lock_name=LOCK, owner_id=owner_id)
            if local.status is Status.CANCELLING:
                arn = client.execution_arn
                request = replace(request, waits=True, ticket=ticket, execution_arn=arn)
            return store.release(request, seen=remembered)


_BY_OLGA: Final[dict[str, Any]] = {
    "lock_name": LOCK,
    "requested_by": "olga",
    "reason": "why not",
}


def concluded(client: Client, local: Local, answer: object) -> Local:
    """What the answer of the operation makes of the client."""
    if isinstance(answer, LockStoreUnavailable):
        return local.again()
    if local.orphaned:
        return local.dead()
    if local.status is Status.LIMITING:
        is_last = local.calls == len(client.sets)
        return local.at(Status.DONE if is_last else Status.HAS_LIMITED)
    if isinstance(answer, Queued) and not client.pushed:
        local = local._replace(ticket=answer.entered_at_ms)
    after, told = _AFTER[type(answer)], local.told
    match answer:
        case Grant() if local.status is not Status.RENEWING:
            told = answer.fencing_token
        case LockState(holders=(oldest, *_)):
            after, told = Status.FORCING, oldest.fencing_token
        case Refusal() if answer.reason is RefusalReason.ALREADY_RELEASED:
            after = Status.FENCED
        case Refusal() if answer.reason is RefusalReason.SUPERSEDED:
            after = Status.SUPERSEDED
        case Refusal() if answer.reason is RefusalReason.ASK_AGAIN:
            return local.again()
    return local.at(after, told=told)


_AFTER: Final[dict[type, Status]] = {
    Grant: Status.WORKING,
    Queued: Status.ASLEEP,
    NotHeld: Status.NOT_HELD,
    Refusal: Status.REFUSED,
    LockState: Status.REFUSED,
    type(None): Status.REFUSED,
    Released: Status.DONE,
}
