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
from examples.demo.incidents import error_kept, handed_on, stopped_at_work
from examples.demo.turns import (
    granted_in_order_of_entry,
    less_idle_than,
    waiting_cost_nothing,
    woken,
)


def all_checks(story: Story, *, error: str) -> dict[str, tuple[Check, ...]]:
    """Every check of the demo, by the part of the story it judges."""
    incidents = (story.failed, story.stopped)
    involved = [e for i in incidents for e in (i.broken, i.following)]
    return {
        story.unguarded.title: (
            all_finished(story.unguarded),
            updates_were_lost(story.unguarded),
            overlaps_were_found(story.unguarded),
        ),
        story.polling.title: tuple(_guarded(story.polling)),
        story.queue.title: (
            *_guarded(story.queue),
            granted_in_order_of_entry(story.queue),
            waiting_cost_nothing(story.queue, fallback_seconds=story.limits.fallback_seconds),
            less_idle_than(story.queue, story.polling),
        ),
        "When something goes wrong": (
            error_kept(story.failed, error),
            woken(story.failed),
            stopped_at_work(story.stopped),
            handed_on(story.stopped, story.limits),
            no_two_holders(involved),
            tokens_rise(involved),
        ),
    }


def _guarded(run: Run) -> Iterator[Check]:
    yield all_finished(run)
    yield they_contended(run)
    yield no_two_holders(run.executions)
    yield tokens_rise(run.executions)
    yield tasks_got_their_token(run)
    yield no_update_lost(run)
