"""The picture's data says who waited and who was inside, and marks what went wrong."""

import pytest

from examples.demo.facts import Run, Story
from examples.demo.lanes import Bar, Group, Kind, Lane, incident_panel, picture, run_panel


def test_an_unguarded_account_shows_the_crowd_and_the_lost_update(unguarded_run: Run) -> None:
    (group,) = run_panel(unguarded_run).groups
    first, second = (
        Bar(kind=Kind.INSIDE, start=0.05, end=0.85),
        Bar(kind=Kind.INSIDE, start=0.25, end=1.05),
    )
    assert group == Group(
        account_id="alice",
        lanes=(
            Lane(name="a-1", bars=(first,), verdict="lost", bad=True),
            Lane(name="a-2", bars=(second,)),
        ),
        note="expected 970, holds 980 · 1 of 2 lost",
        bad=True,
        crowded=((0.25, 0.85),),
    )


def test_a_guarded_account_shows_turns_in_order_of_entry_with_their_tokens(
    guarded_run: Run,
) -> None:
    group, _ = run_panel(guarded_run).groups
    assert [lane.label for lane in group.lanes] == ["…0000", "…0001", "…0002"]
    assert group.lanes[1].bars == (
        Bar(kind=Kind.WAITING, start=0.0, end=1.6),
        Bar(kind=Kind.INSIDE, start=1.6, end=2.6),
    )
    assert (group.note, group.bad, group.crowded) == ("expected 940, holds 940", False, ())


def test_a_stopped_execution_blocks_its_lock_until_lease_and_tolerance_are_over(
    story: Story,
) -> None:
    failed, stopped = incident_panel(story).groups
    assert [(lane.name, lane.verdict) for lane in failed.lanes] == [
        ("dave-1", "CardDeclined"),
        ("dave-2", ""),
    ]
    assert [bar.kind for bar in failed.lanes[0].bars] == [Kind.WAITING, Kind.INSIDE]
    assert stopped.lanes[0].verdict == "stopped"
    assert stopped.lanes[0].bars[-1] == Bar(kind=Kind.LAPSING, start=1.0, end=8.095)
    assert stopped.note == "next one in after 7.3 s"


def test_a_second_guarded_run_stands_beside_the_first(story: Story, guarded_run: Run) -> None:
    shown = picture(
        Story(
            unguarded=story.unguarded,
            guarded=(guarded_run, guarded_run),
            failed=story.failed,
            stopped=story.stopped,
            lease_seconds=6,
            clock_tolerance_seconds=2,
        )
    )
    assert [panel.title for panel in shown.runs] == [
        "Without the guard",
        "With the guard",
        "With the guard",
    ]
    assert shown.runs[1].span == pytest.approx(4.1)
