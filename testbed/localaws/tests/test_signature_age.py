"""Correction signature_age: a machine whose clock is more than 5 minutes wrong is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from botocore import auth
from botocore.exceptions import ClientError

from testbed.localaws.workbench import Workbench

WithoutCorrection = Callable[..., Workbench]


def code_of_a_request(bench: Workbench, minutes: float) -> str:
    """What a machine is answered whose clock is so many minutes ahead; empty if it is served."""

    def now(*_: object, **__: object) -> datetime:
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        return moment.replace(tzinfo=None)

    client = bench.aws.client("dynamodb")
    with mock.patch.object(auth, "get_current_datetime", now):
        try:
            client.list_tables()
        except ClientError as refused:
            return str(refused.response["Error"]["Code"])
    return ""


@pytest.mark.parametrize("minutes", [-6, 6, -120, 120])
def test_a_clock_that_is_wrong_by_more_is_refused(corrected: Workbench, minutes: float) -> None:
    assert code_of_a_request(corrected, minutes) == "InvalidSignatureException"


@pytest.mark.parametrize("minutes", [-4, 0, 4])
def test_a_clock_that_is_wrong_by_less_is_served(corrected: Workbench, minutes: float) -> None:
    assert code_of_a_request(corrected, minutes) == ""


@pytest.mark.parametrize("minutes", [-120, 120])
def test_control_the_emulator_serves_any(left_out: WithoutCorrection, minutes: float) -> None:
    assert code_of_a_request(left_out("signature_age"), minutes) == ""
