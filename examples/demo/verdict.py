"""All checks of the demo, by the part of the story they judge. Pure."""

from collections.abc import Iterator

from examples.demo.checks import (
    Check,
    all_finished,
    no_two_holders,
    no_update_lost,
    overlaps_were_found,
    tasks_got_their_token,
    they_contended,
    tokens_rise,
    updates_were_lost,
)
from examples.demo.facts import Run, Story
from examples.demo.incidents import error_kept, freed_in_time, stopped_at_work


def all_checks(story: Story, *, error: str) -> dict[str, tuple[Check, ...]]:
    """Every check of the demo, by the part of the story it judges."""
    limits = {
        "lease_seconds": story.lease_seconds,
        "tolerance_seconds": story.clock_tolerance_seconds,
    }
    incidents = (story.failed, story.stopped)
    involved = [e for i in incidents for e in (i.broken, i.following)]
    judged: dict[str, tuple[Check, ...]] = {
        story.unguarded.title: (
            all_finished(story.unguarded),
            updates_were_lost(story.unguarded),
            overlaps_were_found(story.unguarded),
        )
    }
    for run in story.guarded:
        judged[run.title] = tuple(_guarded(run))
    judged["When something goes wrong"] = (
        error_kept(story.failed, error),
        freed_in_time(story.failed, **limits),
        stopped_at_work(story.stopped),
        freed_in_time(story.stopped, **limits),
        no_two_holders(involved),
        tokens_rise(involved),
    )
    return judged


def _guarded(run: Run) -> Iterator[Check]:
    yield all_finished(run)
    yield they_contended(run)
    yield no_two_holders(run.executions)
    yield tokens_rise(run.executions)
    yield tasks_got_their_token(run)
    yield no_update_lost(run)
