"""The picture's data says who waited and who was inside, and marks what went wrong."""

from dataclasses import replace

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
        note="balance 980, not 970",
        bad=True,
        crowded=((0.25, 0.85),),
    )


def test_a_guarded_account_shows_turns_in_order_of_entry_with_their_tokens(
    polling_run: Run,
) -> None:
    group, _ = run_panel(polling_run).groups
    assert [lane.label for lane in group.lanes] == ["…0000", "…0001", "…0002"]
    assert group.lanes[1].bars == (
        Bar(kind=Kind.WAITING, start=0.0, end=1.6),
        Bar(kind=Kind.INSIDE, start=1.6, end=2.6),
    )
    assert (group.note, group.bad, group.crowded) == ("balance 940, correct", False, ())


def test_a_stopped_execution_blocks_its_lock_until_it_is_handed_on(
    story: Story,
) -> None:
    failed, stopped = incident_panel(story).groups
    assert [(lane.name, lane.verdict) for lane in failed.lanes] == [
        ("dave-1", "CardDeclined"),
        ("dave-2", ""),
    ]
    assert [bar.kind for bar in failed.lanes[0].bars] == [Kind.WAITING, Kind.INSIDE]
    assert failed.note == "next one in after 50 ms"
    assert stopped.lanes[0].verdict == "stopped"
    assert stopped.lanes[0].bars[-1] == Bar(kind=Kind.ORPHANED, start=1.0, end=1.6)
    assert stopped.note == "next one in after 600 ms (by its lease: 7.1 s)"


def test_every_run_has_a_panel_that_says_what_it_cost(story: Story) -> None:
    shown = picture(story)
    assert [(panel.title, panel.subtitle) for panel in shown.runs] == [
        ("Without the guard", "no lock · 1 transition"),
        ("Guard that polls", "500 ms between holders · 5 to 11 transitions"),
        ("Guard with a queue", "40 ms between holders · 4 transitions"),
    ]
    assert shown.runs[1].span == pytest.approx(4.1)


def test_a_lane_is_named_by_what_its_account_does_not_say_already(polling_run: Run) -> None:
    group, _ = run_panel(polling_run).groups
    assert (group.account_id, [lane.name for lane in group.lanes]) == ("alice", ["1", "2", "3"])


def test_the_time_in_which_no_one_was_inside_though_others_waited_is_shown(
    polling_run: Run, queue_run: Run, story: Story
) -> None:
    assert run_panel(polling_run).groups[0].idle == ((1.1, 1.6), (2.6, 3.1))
    assert run_panel(queue_run).groups[0].idle == ((1.1, 1.14), (2.14, 2.18))
    assert [group.idle for group in incident_panel(story).groups] == [
        ((1.1, 1.15),),
        ((1.0, 1.6),),
    ]


def test_a_stopped_execution_whose_lock_no_one_got_has_no_end_of_it_to_show(story: Story) -> None:
    never = replace(story.stopped, following=replace(story.stopped.following, calls=()))
    _, group = incident_panel(replace(story, stopped=never)).groups
    assert [bar.kind for bar in group.lanes[0].bars] == [Kind.WAITING, Kind.INSIDE]
    assert (group.note, group.bad) == ("no one waited and got in", True)


def test_a_next_one_that_never_got_in_is_shown_as_bad(story: Story) -> None:
    never = replace(story.failed, following=replace(story.failed.following, calls=()))
    group, _ = incident_panel(replace(story, failed=never)).groups
    assert (group.note, group.bad, group.idle) == ("no one waited and got in", True, ())
