"""How far each client is, numbered, and what the real code does next with each answer.

The code runs once for each history of one client, not once for each state of all of them. Therefore
a search with the code itself is fast enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fairlock.protocol.model import SeenLock
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
from tests.model.numbered_tables import Numbered, NumberedTables, described
from tests.model.replay import Call, Names, RecordedWorld, run_to_next_call

_LONGEST_OPERATION: Final = 40
"""Requests. Without contention no operation takes ten."""


@dataclass(slots=True)
class Known:
    """What is known of a numbered `Local`.

    Attributes:
        call: number of the request that it is about to make, if it is in an operation.
        active: whether it will take its next step by itself, soon.
        listens_to: the task token through which it can be told at this moment.
        starts: numbers of the locals that begin an operation, by instant.
        answered: number of the local after an answer, by the answer's number and the instant.
    """

    local: Local
    call: int | None
    active: bool
    listens_to: str | None
    starts: dict[int, list[int]] = field(default_factory=dict)
    answered: dict[tuple[int, int], int] = field(default_factory=dict)


class Progress:
    """Numbers for how far clients are."""

    def __init__(self, clients: tuple[Client, ...], tables: NumberedTables, names: Names) -> None:
        self.clients = clients
        self.known: list[Known] = []
        self.calls: list[Call] = []
        self._numbered_calls = Numbered()
        self._tables = tables
        self._names = names
        self._numbers: dict[Local, int] = {}
        self.index_of = {c.name: i for i, c in enumerate(clients)}

    def first(self) -> tuple[int, ...]:
        """All clients before they begin."""
        return tuple(
            self.number(Local(i, c.begins, polls=c.polls, heartbeats=c.heartbeats))
            for i, c in enumerate(self.clients)
        )

    def number(self, local: Local, call: Call | None = None) -> int:
        """The number of a local; `call` is what it is about to ask."""
        found = self._numbers.get(local)
        if found is None:
            found = self._numbers[local] = len(self.known)
            asked = None if call is None else self._number_of_call(call)
            client = self.clients[local.client]
            listens = local.status in (Status.ACQUIRING, Status.ASLEEP)
            if local.orphaned:
                listens = False
            token = task_token(client, local) if listens else None
            self.known.append(Known(local, asked, local.status in OPERATING, token))
        return found

    def starts(self, number: int, instant: int) -> list[int]:
        """The client at the first request of each operation that it may begin now."""
        known = self.known[number]
        if known.call is not None:
            return [number]
        found = known.starts.get(instant)
        if found is None:
            client = self.clients[known.local.client]
            begun = [
                b.begun(instant, says_when=client.says_when)
                for b in beginnings(client, known.local)
            ]
            found = known.starts[instant] = [self._run(local) for local in begun]
        return found

    def answered(self, number: int, answer: int, instant: int) -> int:
        known = self.known[number]
        key = (answer, instant)
        found = known.answered.get(key)
        if found is None:
            local = known.local
            answers, instants = (*local.answers, answer), (*local.instants, instant)
            longer = local._replace(half_joined=False, answers=answers, instants=instants)
            endless = len(answers) > _LONGEST_OPERATION
            ended = self.number(local.at(Status.ENDLESS)) if endless else None
            found = known.answered[key] = ended or self._run(longer)
        return found

    def _run(self, local: Local) -> int:
        client = self.clients[local.client]
        index = self.index_of[client.name]
        answers = [self._tables.answer(number) for number in local.answers]
        result = run_to_next_call(
            lambda store, _world: operate(client, local, store, self._remembered(local)),
            RecordedWorld(
                answers,
                local.instants,
                offset_ms(index, local.calls),
                self._names,
                claim=claim_of(client, index, local),
            ),
        )
        if isinstance(result, Call):
            return self.number(local, result)
        return self.number(concluded(client, local, result))

    def _remembered(self, local: Local) -> SeenLock | None:
        return self._tables.seen(local.remembered - 1) if local.remembered else None

    def _number_of_call(self, call: Call) -> int:
        number = self._numbered_calls.number(described(call), call)
        if number == len(self.calls):
            self.calls.append(call)
        return number
