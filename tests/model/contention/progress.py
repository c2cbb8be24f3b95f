"""How far each client is, numbered, and what the real code does next with each answer.

The code runs once for each history of one client, not once for each state of all of them. Therefore
a search with the code itself is fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.model.contention.clients import (
    OPERATING,
    Client,
    Local,
    Status,
    beginnings,
    claim_of,
    concluded,
    offset_ms,
    operate,
    task_token,
)
from tests.model.numbered_tables import NumberedTables, described
from tests.model.replay import Call, Names, RecordedWorld, run_to_next_call

_LONGEST_OPERATION: Final = 40
"""Requests. Without contention no operation takes ten."""


@dataclass(slots=True)
class Known:
    """What is known of a numbered `Local`.

    Attributes:
        call: the request that it is about to make, if it is in an operation.
        active: whether it will take its next step by itself, soon.
        listens_to: the task token through which it can be told at this moment.
    """

    local: Local
    call: Call | None
    active: bool
    listens_to: str | None


class Progress:
    """Numbers for how far clients are."""

    def __init__(self, clients: tuple[Client, ...], tables: NumberedTables, names: Names) -> None:
        self.known: list[Known] = []
        self.starts = cache(self._starts)
        self.answered = cache(self._answered)
        self._clients, self._tables, self._names = clients, tables, names
        self.calls: dict[str, Call] = {}
        self._numbers: dict[Local, int] = {}

    def first(self) -> tuple[int, ...]:
        """All clients before they begin."""
        return tuple(
            self.number(Local(i, c.begins, polls=c.polls, heartbeats=c.heartbeats))
            for i, c in enumerate(self._clients)
        )

    def number(self, local: Local, call: Call | None = None) -> int:
        """The number of a local; `call` is what it is about to ask."""
        found = self._numbers.get(local)
        if found is None:
            found = self._numbers[local] = len(self.known)
            if call is not None:
                call = self.calls.setdefault(described(call), call)
            client = self._clients[local.client]
            listens = local.status in (Status.ACQUIRING, Status.ASLEEP) and not local.orphaned
            token = task_token(client, local) if listens else None
            self.known.append(Known(local, call, local.status in OPERATING, token))
        return found

    def _starts(self, number: int, instant: int) -> list[int]:
        """The client at the first request of each operation that it may begin now."""
        known = self.known[number]
        if known.call is not None:
            return [number]
        client = self._clients[known.local.client]
        return [
            self._run(local.begun(instant, says_when=client.says_when))
            for local in beginnings(client, known.local)
        ]

    def _answered(self, number: int, answer: int, instant: int) -> int:
        """The client after an answer: at its next request, or after its operation."""
        local = self.known[number].local
        answers, instants = (*local.answers, answer), (*local.instants, instant)
        if len(answers) > _LONGEST_OPERATION:
            return self.number(local.at(Status.ENDLESS))
        return self._run(local._replace(half_joined=False, answers=answers, instants=instants))

    def _run(self, local: Local) -> int:
        client, index = self._clients[local.client], local.client
        seen = self._tables.seen(local.remembered - 1) if local.remembered else None
        result = run_to_next_call(
            lambda store, _world: operate(client, local, store, seen),
            RecordedWorld(
                [self._tables.answer(number) for number in local.answers],
                local.instants,
                offset_ms(index, local.calls),
                self._names,
                claim=claim_of(client, index, local),
            ),
        )
        if isinstance(result, Call):
            return self.number(local, result)
        return self.number(concluded(client, local, result))
