"""AWS's time by the Dates of answers: what counts as one, and what is guessed between them."""

from __future__ import annotations

import copy
import logging
from email.utils import formatdate
from typing import Any

import botocore.session
import pytest

from fairlock.clock import AwsClock, is_aws
from fairlock.testing.manual_clock import START_MS
from tests.support import logged_here
from tests.support.clocks import WrongClock

AWS = "https://dynamodb.eu-central-1.amazonaws.com"
ELSEWHERE = "http://127.0.0.1:8000"


def answer(ms: int, **headers: str) -> dict[str, Any]:
    date = formatdate(ms // 1000, usegmt=True)
    found = {"date": date, "x-amzn-requestid": "r", **headers}
    return {"ResponseMetadata": {"HTTPHeaders": {k: v for k, v in found.items() if v}}}


def learn(clock: WrongClock, aws: AwsClock, ms: int, **headers: str) -> int | None:
    """An answer that came at once."""
    return aws.date_ms(answer(ms, **headers), sent=clock.monotonic(), endpoint_url=AWS)


@pytest.fixture
def clock() -> WrongClock:
    return WrongClock()


@pytest.fixture
def aws(clock: WrongClock) -> AwsClock:
    return AwsClock(clock)


def test_before_the_first_answer_the_wall_clock_is_all_there_is(
    clock: WrongClock, aws: AwsClock
) -> None:
    assert (aws.now_ms(), aws.earliest_ms(), aws.latest_ms()) == (clock.wall_ms(), None, None)


@pytest.mark.parametrize(("skew_ms", "guess_ms"), [(-240_000, 0), (250, 250), (240_000, 1_000)])
def test_a_wall_clock_counts_as_far_as_the_date_allows(
    clock: WrongClock, aws: AwsClock, skew_ms: int, guess_ms: int
) -> None:
    clock.skew_ms = skew_ms
    assert learn(clock, aws, START_MS) == START_MS
    assert aws.now_ms() == START_MS + guess_ms
    assert (aws.earliest_ms(), aws.latest_ms()) == (START_MS - 500, START_MS + 1_500)


def test_answers_narrow_what_is_possible(clock: WrongClock, aws: AwsClock) -> None:
    clock.skew_ms = -240_000
    clock.advance(0.6)
    learn(clock, aws, START_MS)
    clock.advance(0.5)
    learn(clock, aws, START_MS + 1_000)
    assert abs(aws.now_ms() - clock.true.wall_ms()) <= 101


@pytest.mark.parametrize("moved", ["the wall clock was set", "the machine was frozen"])
def test_an_estimate_is_dropped_if_our_clocks_disagree(
    clock: WrongClock, aws: AwsClock, moved: str
) -> None:
    learn(clock, aws, START_MS)
    clock.skew_ms += 60_000 if moved == "the machine was frozen" else -7_200_000
    assert (aws.now_ms(), aws.earliest_ms()) == (clock.wall_ms(), None)
    learn(clock, aws, START_MS)
    assert aws.earliest_ms() == START_MS - 500


def test_an_answer_against_what_was_known_is_believed(clock: WrongClock, aws: AwsClock) -> None:
    learn(clock, aws, START_MS)
    learn(clock, aws, START_MS + 3_600_000)
    assert aws.earliest_ms() == START_MS + 3_600_000 - 500


@pytest.mark.parametrize(
    "headers",
    [
        {"date": ""},
        {"x-amzn-requestid": ""},
        {"age": "1"},
        {"via": "1.1 proxy"},
        {"date": "tomorrow"},
    ],
    ids=str,
)
def test_a_date_that_is_not_of_dynamodb_is_none(aws: AwsClock, headers: dict[str, str]) -> None:
    response = answer(START_MS, **headers)
    assert aws.date_ms(response, sent=0.0, endpoint_url=AWS) is None
    assert aws.earliest_ms() is None


def test_elsewhere_the_systems_clock_takes_its_place_and_the_log_says_so_once(
    clock: WrongClock, aws: AwsClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.skew_ms = 700
    with caplog.at_level(logging.INFO, "fairlock"):
        for _ in range(3):
            assert aws.date_ms({}, sent=0.0, endpoint_url=ELSEWHERE) == START_MS + 700
    [told] = logged_here(caplog)
    assert "sends no Date: leases go by this machine's clock" in told


def test_who_wants_the_systems_clock_gets_it_whatever_the_date(clock: WrongClock) -> None:
    aws = AwsClock(clock, uses_dates=False)
    assert learn(clock, aws, START_MS + 3_600_000) == START_MS


def test_a_copy_goes_on_by_itself_as_after_a_fork(clock: WrongClock, aws: AwsClock) -> None:
    learn(clock, aws, START_MS)
    child = copy.copy(aws)
    learn(clock, child, START_MS + 3_600_000)
    assert aws.earliest_ms() == START_MS - 500


def test_every_partition_of_aws_is_known() -> None:
    loader = botocore.session.get_session().get_component("data_loader")
    for partition in loader.load_data("partitions")["partitions"]:
        outputs = partition["outputs"]
        for suffix in (outputs["dnsSuffix"], outputs["dualStackDnsSuffix"]):
            assert is_aws(f"https://dynamodb.somewhere-1.{suffix}"), suffix


@pytest.mark.parametrize(
    "url", [None, "", ELSEWHERE, "http://dynamodb:8000", "https://amazonaws.com.example"]
)
def test_other_places_are_none_of_awss(url: str | None) -> None:
    assert not is_aws(url)
