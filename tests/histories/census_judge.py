"""What must hold after each write of the census, no matter who sent it, and however late it lands.

Exclusion: no more hold than the limit of any holder, and who was told that it holds does. Grants:
tokens rise, a stored end never moves back, no acquisition is granted that is over. Queue: who
waits is found there under its newest task token, on a contended lock, and is served in its turn.

What docs/protocol.md names among its known limits is told apart by `_gap`, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fairlock.clock import over_at_ms
from fairlock.protocol.admission import SLACK_MS
from fairlock.protocol.claims import has_ended, is_fenced
from fairlock.protocol.items import read_state, read_waiter
from fairlock.protocol.model import (
    Holder,
    LockState,
    Waiter,
)
from fairlock.protocol.schema import (
    FENCED,
    RELEASED_AT,
    STATE,
    WAITER_PREFIX,
    partition_of,
)
from fairlock.protocol.table_requests import Item
from tests.histories.late_network import Call, Items, Sending
from tests.support import LOCK, FakeClock

_STATE_KEY: Final = (partition_of(LOCK), STATE)
_HOLDERS_LEAVE: Final = frozenset(
    {"release_permit", "release_by_force", "leave_without_successor", "serve_waiter"}
)
_LEAVES_QUEUE: Final = frozenset({"mark_given_up", "give_up"})


class Gap(StrEnum):
    """What docs/protocol.md names among its known limits."""

    SLACK = "within the slack"
    NO_MARK = "an acquire that was refused, or whose release found nothing, lands later"
    DIRECT = "a stalled call of the functions without a time of the call"
    STALLED_READ = "a call stalled between its reads of the lock and of the queue"
    TWO_PLACES = "a direct caller has a second place"


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """An owner was told that it holds.

    Attributes:
        until_ms: the end of the lease by its own count; None as long as its execution runs.
    """

    token: int
    until_ms: int | None


@dataclass
class Judgement:
    """Compares the table before and after each write with what the owners were told.

    Attributes:
        clock: of the run.
        beliefs: of the owners that rely on a grant.
        asked: the number of the newest call that was answered "queued", by the owners that wait.
        over: when the acquisitions of these owners ended.
        forced: fencing tokens of the grants that are to be released by force.
        versions: of all owners; None of those that do not ask for the newest only.
        newest: the highest version whose owner was told that it holds.
        violations: by what is wrong and who wrote it.
        gaps: known limits that were met.
        trace: the writes that changed the table.
    """

    clock: FakeClock
    beliefs: dict[str, Belief] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    forced: set[int] = field(default_factory=set)
    versions: dict[str, int | None] = field(default_factory=dict)
    newest: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)
    _late_waiters: set[str] = field(default_factory=set)
    _doubled: set[str] = field(default_factory=set)
    _departures: list[tuple[int, int]] = field(default_factory=list)
    _ceiling_call: Call | None = None
    """The last call of an operator that was answered."""
    _set_back_to_ms: int | None = None
    _granted: set[str] = field(default_factory=set)
    _seen: tuple[Item, LockState] = field(default_factory=lambda: ({}, LockState()))

    def note(self, line: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{(self.clock.now_ms % 10_000_000) / 1000:9.3f} {line}")

    def wrong(self, what: str, sending: Sending | None = None) -> None:
        """Counts a violation."""
        by = "" if sending is None else f" by {sending.name}{' (late)' if sending.late else ''}"
        self.note(f"VIOLATION {what}{by}")
        self.violations[f"{what}{by}"] += 1

    def see(self, sending: Sending, before: Items, after: Items) -> None:
        """Judges one write."""
        old, new = self._state(before), self._state(after)
        self._note_write(sending, old, new)
        if old is not new:
            self._judge_departures(sending, old, new, after)
            self._judge_grants(sending, old, new)
            self._judge_ceiling(sending, old, new)
            self._judge_leases(sending, old, new)
        keys = [
            key for key in before.keys() | after.keys() if before.get(key) is not after.get(key)
        ]
        for key in keys:
            if key[1].startswith(WAITER_PREFIX):
                self._judge_waiter(sending, before.get(key), after.get(key), after)
            elif key[0] != _STATE_KEY[0]:
                self._judge_claim(sending, before.get(key, {}), after.get(key, {}))
        if sending.name == "serve_waiter" and keys:
            self._judge_order(sending, before, after)
        self._judge_mark(sending, new, after)

    def told(self, owner_id: str, token: int, until_ms: int | None, holders: LockState) -> None:
        """An owner is told that it holds."""
        self.asked.pop(owner_id, None)
        self.newest = max(self.newest, self.versions.get(owner_id) or 0)
        self.beliefs[owner_id] = Belief(token=token, until_ms=until_ms)
        holder = holders.holder(owner_id)
        is_there = holder is not None and holder.fencing_token == token
        if not is_there and self._believes(owner_id, token):
            self.wrong("an owner is told of a grant that is not there")

    def forget(self, owner_id: str) -> None:
        """An owner relies on nothing any more, and does not wait."""
        self.beliefs.pop(owner_id, None)
        self.asked.pop(owner_id, None)

    def ceiling_answered(self, call: Call) -> None:
        """An operator is told that its change holds."""
        self._ceiling_call = call

    def judge_superseded(self, owner_id: str) -> None:
        """An owner is told that a newer version was granted."""
        granted = max((self.versions.get(owner) or 0 for owner in self._granted), default=0)
        if granted <= (self.versions[owner_id] or 0):
            self.wrong("an owner is superseded by no one")

    def _state(self, items: Items) -> LockState:
        item = items.get(_STATE_KEY, {})
        if self._seen[0] is not item:
            self._seen = (item, read_state(item))
        return self._seen[1]

    def _note_write(self, sending: Sending, old: LockState, new: LockState) -> None:
        holders = ", ".join(_described(h) for h in new.holders)
        late = f" LATE, sent {(sending.sent_ms % 10_000_000) / 1000:.3f}" if sending.late else ""
        mark = f"contended {new.wait_seq}" if new.contended else ""
        left = (new.released_at_ms or 0) % 10_000_000 / 1000
        self.note(
            f"{sending.name}{late} [{sending.call.kind} {sending.call.owner_id.strip('-')}]"
            + ("" if old is new else f": [{holders}] {mark} left {left:.3f}")
        )

    def _believes(self, owner_id: str, token: int) -> bool:
        belief = self.beliefs.get(owner_id)
        if belief is None or belief.token != token or token in self.forced:
            return False
        return belief.until_ms is None or self.clock.now_ms < belief.until_ms

    def _judge_departures(
        self, sending: Sending, old: LockState, new: LockState, after: Items
    ) -> None:
        staying = {holder.fencing_token for holder in new.holders}
        for holder in old.holders:
            if holder.fencing_token in staying:
                continue
            self._departures.append((self.clock.now_ms, _left_at_ms(sending, self.clock)))
            if self._believes(holder.owner_id, holder.fencing_token):
                del self.beliefs[holder.owner_id]
                self.wrong("a working holder is removed", sending)
        if sending.name in _LEAVES_QUEUE:
            self._departures.append((self.clock.now_ms, _left_at_ms(sending, self.clock)))
        back_ms = (old.released_at_ms or 0) - (new.released_at_ms or 0)
        if 0 < back_ms <= SLACK_MS and sending.name in _HOLDERS_LEAVE:
            self.gaps[Gap.SLACK] += 1
            self._set_back_to_ms = new.released_at_ms or 0
        elif back_ms > 0:
            self.wrong("the time of the last departure moves back", sending)
        stored = after.get(_STATE_KEY, {})
        if sending.name in _LEAVES_QUEUE and RELEASED_AT not in stored:
            self.wrong("a departure is not marked", sending)

    def _judge_grants(self, sending: Sending, old: LockState, new: LockState) -> None:
        known = {holder.fencing_token for holder in old.holders}
        granted = [holder for holder in new.holders if holder.fencing_token not in known]
        if new.fencing_token < old.fencing_token:
            self.wrong("the token goes back", sending)
        for holder in granted:
            self._granted.add(holder.owner_id)
            if (self.versions.get(holder.owner_id) or self.newest) < self.newest:
                self.wrong("granted to an older version than one that ran", sending)
            if new.ceiling is not None and len(new.holders) > (new.ceiling.limit or 0):
                self.wrong("granted above the ceiling", sending)
            if holder.fencing_token <= old.fencing_token:
                self.wrong("the token does not rise", sending)
            if holder.owner_id in self.over and holder.owner_id not in self._late_waiters:
                self._judge_ghost("granted to", sending, holder.owner_id)
        if new.held != len(new.holders):
            self.wrong("`held` is not the number of holders", sending)
        if new.holders and len(new.holders) > min(holder.limit for holder in new.holders):
            self.wrong("more holders than a limit allows", sending)

    def _judge_ceiling(self, sending: Sending, old: LockState, new: LockState) -> None:
        """An answered change stands until a call changes it that is not over."""
        if old.last_ceiling == new.last_ceiling:
            return
        if (new.last_ceiling.change if new.last_ceiling else 0) != (
            old.last_ceiling.change if old.last_ceiling else 0
        ) + 1:
            self.wrong("a change of the ceiling is forgotten", sending)
        last = self._ceiling_call
        if last is not None and sending.sent_ms < last.began_ms:
            self.wrong("an older ceiling over a newer", sending)

    def _judge_ghost(self, what: str, sending: Sending, owner_id: str) -> None:
        gap = self._gap(sending, owner_id)
        if gap is None:
            self.wrong(f"{what} an owner that is over", sending)
        else:
            self.note(f"known gap: {gap}")
            self.gaps[gap] += 1

    def _gap(self, sending: Sending, owner_id: str) -> Gap | None:
        """The known limit that explains a write for an owner that is over; None if none does."""
        call = sending.call
        edge = _values(sending).get(":outdated_at")
        if edge is not None:
            sent_ms = int(edge["N"]) - SLACK_MS
            since = [left_at for landed, left_at in self._departures if landed >= sent_ms]
            if not since and sending.late:
                return Gap.NO_MARK
            last_ms = max(since, default=sent_ms + 3 * SLACK_MS)
            is_set_back = (
                self._set_back_to_ms is not None and self._set_back_to_ms <= sent_ms + SLACK_MS
            )
            if last_ms <= sent_ms + (2 if is_set_back else 1) * SLACK_MS:
                return Gap.SLACK
        if sending.late or not call.overtaken or call.owner_id != owner_id:
            return None
        return Gap.DIRECT if call.execution_arn is None else None

    def _judge_leases(self, sending: Sending, old: LockState, new: LockState) -> None:
        for holder in new.holders:
            was = old.holder(holder.owner_id)
            if was is None or was.fencing_token != holder.fencing_token:
                continue
            if holder.expires_at_ms < was.expires_at_ms:
                self.wrong("the end of a lease moves back", sending)
            is_marked = holder.is_undelivered and not was.is_undelivered
            if is_marked and self._believes(holder.owner_id, holder.fencing_token):
                self.wrong("a grant that was told is marked as undelivered", sending)

    def _judge_waiter(
        self, sending: Sending, was: Item | None, now: Item | None, after: Items
    ) -> None:
        if now is None and was is not None:
            waiter = read_waiter(LOCK, was)
            owner_id = waiter.request.owner_id
            state = self._state(after)
            is_superseded = state.supersedes(waiter.request.only_newest)
            if self._waits(waiter) and state.holder(owner_id) is None and not is_superseded:
                self.asked.pop(owner_id)
                if owner_id in self._doubled:
                    self.gaps[Gap.TWO_PLACES] += 1
                elif sending.call.interrupted and waiter.asked_at_ms > sending.call.began_ms:
                    self.gaps[Gap.STALLED_READ] += 1
                else:
                    self.wrong("a waiter is forgotten", sending)
        if now is not None:
            waiter = read_waiter(LOCK, now)
            owner_id = waiter.request.owner_id
            is_superseded = self._state(after).supersedes(waiter.request.only_newest)
            is_ghost = owner_id in self.over and owner_id not in self._late_waiters
            if is_ghost and not is_superseded:  # A superseded waiter counts as dead.
                self._judge_ghost("a place for", sending, owner_id)
                self._late_waiters.add(owner_id)
            if was is None:
                self._judge_place(sending, waiter, after)
            if owner_id in self.asked and _call_number(waiter) < self.asked[owner_id]:
                if owner_id in self._doubled:
                    self.gaps[Gap.TWO_PLACES] += 1
                    self.asked[owner_id] = _call_number(waiter)  # It is not counted twice.
                else:
                    self.wrong("an older task token over a newer", sending)

    def _judge_place(self, sending: Sending, waiter: Waiter, after: Items) -> None:
        """A workflow has one place; a direct caller may have two, if a ticket was lost."""
        mine = [
            key
            for key, item in after.items()
            if key[1].startswith(WAITER_PREFIX)
            and item["owner_id"].get("S") == waiter.request.owner_id
        ]
        if len(mine) == 1:
            return
        if waiter.request.execution_arn is not None:
            self.wrong("a workflow has two places", sending)
        self._doubled.add(waiter.request.owner_id)
        self.gaps[Gap.TWO_PLACES] += 1

    def _waits(self, waiter: Waiter) -> bool:
        """Whether a living caller knows of this place, and keeps it."""
        end_ms = over_at_ms(waiter.expires_at_ms)
        return waiter.request.owner_id in self.asked and end_ms >= self.clock.now_ms

    def _judge_claim(self, sending: Sending, was: Item, now: Item) -> None:
        if is_fenced(was) and is_fenced(now) and int(now[FENCED]["N"]) < int(was[FENCED]["N"]):
            self.wrong("the stage of a claim goes back", sending)
        if sending.late and has_ended(was) and not has_ended(now):
            self.wrong("a claim that has ended is open again", sending)

    def _judge_order(self, sending: Sending, before: Items, after: Items) -> None:
        """A hand-off goes to the first of those that its call has read, and that still ask."""
        for key, item in before.items():
            # The place that was served: an owner may have another one.
            if key in after or not key[1].startswith(WAITER_PREFIX):
                continue
            owner_id = item["owner_id"]["S"]
            waiter = read_waiter(LOCK, item)
            if waiter.request.task_token and _call_number(waiter) < self.asked.get(owner_id, 0):
                self._wrong_but(owner_id, "handed over to a token that is not awaited", sending)
            read = [
                seen
                for seen in sending.queue
                if seen["sk"]["S"] < key[1] and seen["owner_id"]["S"] != owner_id
            ]
            ahead = [
                earlier
                for earlier in (read_waiter(LOCK, seen) for seen in read)
                if (key[0], earlier.sort_key) in before
                and over_at_ms(earlier.expires_at_ms) >= sending.queue_read_ms
                and not self._state(before).supersedes(earlier.request.only_newest)
            ]
            if self._gives_its_turn(ahead, waiter):
                continue
            for earlier in filter(self._waits, ahead):
                other_id = earlier.request.owner_id
                self._wrong_but(other_id, "a waiter is passed over", sending)

    @staticmethod
    def _gives_its_turn(ahead: list[Waiter], served: Waiter) -> bool:
        """Whether the first has a version, and gives its turn to the highest one that waits.

        Even if its caller has given up: its place still stands, and no one else knows.
        """
        version = ahead[0].request.only_newest if ahead else None
        return version is not None and version < (served.request.only_newest or 0)

    def _wrong_but(self, owner_id: str, what: str, sending: Sending) -> None:
        """A violation, unless it is what a second place of that owner leads to."""
        if owner_id in self._doubled:
            self.gaps[Gap.TWO_PLACES] += 1
        else:
            self.wrong(what, sending)

    def _judge_mark(self, sending: Sending, state: LockState, after: Items) -> None:
        """Who waits is on a contended lock: else it is overtaken, or not served."""
        if state.contended:
            return
        for key, item in after.items():
            if key[1].startswith(WAITER_PREFIX) and self._waits(read_waiter(LOCK, item)):
                self.wrong("the lock is open while an owner waits", sending)


def _described(holder: Holder) -> str:
    end = holder.expires_at_ms % 10_000_000 / 1000
    return (
        f"{holder.owner_id.strip('-')} #{holder.fencing_token % 1000} r{holder.revision}"
        f" of {holder.limit} to {end:.1f}"
    )


def _call_number(waiter: Waiter) -> int:
    """The number of the call that a task token of the census names."""
    token = waiter.request.task_token
    return 1_000_000 if token is None else int(token.rpartition("|")[2])


def _values(sending: Sending) -> Mapping[str, Mapping[str, str]]:
    request = sending.request
    if "TransactItems" in request:
        request = request["TransactItems"][0].get("Update", {})
    values: Mapping[str, Mapping[str, str]] = request.get("ExpressionAttributeValues", {})
    return values


def _left_at_ms(sending: Sending, clock: FakeClock) -> int:
    """When a departure was sent, as it says itself."""
    at = _values(sending).get(":released_at")
    return clock.now_ms if at is None else int(at["N"])
