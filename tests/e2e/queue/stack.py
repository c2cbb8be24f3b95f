"""Workflows whose guards wait in the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from aws_cdk import Duration
from aws_cdk import aws_stepfunctions as sfn

from fairlock.cdk import Waiting
from fairlock.cdk.fragments import jsonata
from fairlock.cdk.guard import service_calls
from fairlock.cdk.guard.service_calls import ANSWER, divide_wait
from tests.e2e.guard.stack import (
    INPUT,
    JSONATA,
    ChainDecides,
    ChainPath,
    Flat,
    FlatPath,
    Form,
    Forms,
    MapGuarded,
    Nested,
    TokenJsonata,
    TokenPath,
)
from tests.e2e.workflow_parts import stay

SHORT_FALLBACK_SECONDS: Final = 10
TURNS_LEASE_SECONDS: Final = 5
TURNS_MAX_WAIT_SECONDS: Final = 600
TURNS: Final = divide_wait(TURNS_MAX_WAIT_SECONDS, fallback_seconds=SHORT_FALLBACK_SECONDS)
KEEP_ALIVE_SECONDS: Final = 2
GIVES_UP_SECONDS: Final = (8, 25)


class QueueForms(Forms):
    """Guards that sleep in the queue, and ask again by themselves every ten seconds."""

    waiting = Waiting.queue(fallback=Duration.seconds(SHORT_FALLBACK_SECONDS))

    def forms(self) -> Sequence[Form]:
        return (
            Flat(self, "QueueFlat"),
            FlatPath(self, "QueueFlatPath"),
            ChainPath(self, "QueueChainPath"),
            ChainDecides(self, "QueueChainDecides"),
            Nested(self, "QueueNested"),
            MapGuarded(self, "QueueMap"),
            TokenJsonata(self, "QueueTokenJsonata"),
            TokenPath(self, "QueueTokenPath"),
            Turns(self, "QueueTurns"),
            Patient(self, "QueuePatient"),
            PatientChain(self, "QueuePatientChain"),
            *(
                GivesUpAfter(self, f"QueueGivesUp{seconds}", seconds=seconds)
                for seconds in GIVES_UP_SECONDS
            ),
            Elsewhere(self, "QueueGivesUpElsewhere"),
            KeptAlive(self, "QueueKeptAlive"),
            Believing(self, "QueueBelieving"),
            KeptAliveBelieving(self, "QueueKeptAliveBelieving"),
        )


class Turns(Form):
    """A lock and a limit as the input says; a short lease."""

    language = JSONATA

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work(),
            lock_name="{% $states.input.lock %}",
            limit="{% $exists($states.input.limit) ? $states.input.limit : 1 %}",
            lease=Duration.seconds(TURNS_LEASE_SECONDS),
            max_wait=Duration.seconds(TURNS_MAX_WAIT_SECONDS),
        )


class Patient(Form):
    """The fallback period that guards have by default."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            waiting=Waiting.queue(),
        )


class KeptAlive(Form):
    """Works as long as the input says, with a heartbeat beside."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            stay(self),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            keep_alive=Duration.seconds(KEEP_ALIVE_SECONDS),
        )


class Believing(Patient):
    """The negative control: without the check that an answer is to this very acquisition."""

    def body(self) -> sfn.IChainable:
        with believing_any_answer():
            return super().body()


class KeptAliveBelieving(KeptAlive):
    """The same with a heartbeat."""

    def body(self) -> sfn.IChainable:
        with believing_any_answer():
            return super().body()


@contextmanager
def believing_any_answer() -> Iterator[None]:
    """Guards that are made meanwhile do not check whose answers they get."""

    def believed(_own: object, answer: str, *, then: str, **_condition: str) -> str:
        return jsonata(f"({ANSWER} := {answer}; {then})")

    with patch.object(service_calls, "if_own", believed):
        yield


class PatientChain(Form):
    """The same around two states."""

    def body(self) -> sfn.IChainable:
        chain = sfn.Pass(self, "First").next(self.work_by_path())
        return self.guard(
            chain, lock_name=sfn.JsonPath.string_at("$.lock"), waiting=Waiting.queue()
        )


class GivesUpAfter(Form):
    """Waits for so many seconds at most."""

    def __init__(self, scope: Forms, construct_id: str, *, seconds: int) -> None:
        self.seconds = seconds
        super().__init__(scope, construct_id)

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            max_wait=Duration.seconds(self.seconds),
        )


class Elsewhere(Form):
    """Goes another way after five seconds, and ends there."""

    def body(self) -> sfn.IChainable:
        return self.guard(
            self.work_by_path(),
            lock_name=sfn.JsonPath.string_at("$.lock"),
            max_wait=Duration.seconds(5),
            on_timeout=sfn.Pass.jsonata(self, "Later", outputs={"later": INPUT}),
        ).next(sfn.Pass.jsonata(self, "After", outputs="after"))
