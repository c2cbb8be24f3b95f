"""Workflows that take turns, by a service of their own that has the function for it."""

from __future__ import annotations

import os
from typing import Any, Final

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from fairlock.cdk import ILockService, LockService, Pace
from tests.e2e.turns.stack import example, run_example

INTERVAL_SECONDS: Final = int(os.environ.get("PACE_INTERVAL", "1"))
BY_PATH: Final = sfn.QueryLanguage.JSON_PATH


class PaceForms(Stack):
    """One state machine a form; the output `<form>Arn` names it."""

    def __init__(self, scope: Construct, construct_id: str, *, locks: ILockService) -> None:  # noqa: ARG002 - as all stacks of workflows
        super().__init__(scope, construct_id)
        self._locks = LockService(self, "Locks", pace=True, reaper=False)
        self._locks.add_outputs()
        one_a_second = {"rate": (60 // INTERVAL_SECONDS, Duration.minutes(1))}
        name = "{% $states.input.pace %}"
        by_path = sfn.JsonPath.string_at("$.pace")
        self._machine("PaceEach", self._pace("Each", pace_name=name, **one_a_second))
        self._machine(
            "PacePath",
            self._pace("Path", pace_name=by_path, **one_a_second),
            query_language=BY_PATH,
        )
        hourly = {"rate": (1, Duration.hours(1)), "max_wait": Duration.seconds(0)}
        skipped = sfn.Pass.jsonata(self, "Skipped", outputs="skipped")
        ran = sfn.Pass.jsonata(self, "Ran", outputs="ran")
        skips = self._pace("Skips", pace_name=name, on_too_late=skipped, **hourly)
        self._machine("PaceHourly", skips.next(ran))
        self._machine("PaceFails", self._pace("Fails", pace_name=name, **hourly))
        each = sfn.Map.jsonata(self, "Items", items=sfn.ProvideItems.jsonata("{% $states.input %}"))
        in_map = self._pace("InMap", pace_name="{% $states.input.pace %}", **one_a_second)
        self._machine("PaceInMap", each.item_processor(in_map))
        charge = sfn.Pass.jsonata(self, "Charge")
        names = {"self": self, "locks": self._locks, "Pace": Pace, "Duration": Duration}
        made = run_example(example("pace = Pace("), charge=charge, **names)
        self._machine("PaceExample", made["definition"])

    def _pace(self, construct_id: str, **props: Any) -> Pace:  # noqa: ANN401 - props
        return Pace(self, construct_id, service=self._locks, **props)

    def _machine(self, name: str, body: sfn.IChainable, **props: Any) -> None:  # noqa: ANN401 - props
        machine = sfn.StateMachine(
            self, name, definition_body=sfn.DefinitionBody.from_chainable(body), **props
        )
        CfnOutput(self, f"{name}Arn", value=machine.state_machine_arn)
