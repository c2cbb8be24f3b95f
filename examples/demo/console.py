"""What the demo says in the terminal."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.demo.bill import side_by_side
from examples.demo.checks import Check
from examples.demo.facts import Execution, Role, Story
from examples.demo.runner import Watcher
from examples.demo.table import HEADINGS, tables
from fairlock.text import printable


class Narrator:
    """Tells what happens while it happens, and the outcome at the end."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """A spinner while the block runs, then one line with the time it took."""
        started = time.monotonic()
        with self.console.status(doing):
            yield
        took = time.monotonic() - started
        self.console.print(f"[green]✓[/] {doing} [dim]{took:.1f} s[/]")

    @contextmanager
    def contest(self, doing: str, sizes: Mapping[str, int]) -> Iterator[Watcher]:
        """A bar per account: how many executions wait, work and have ended."""
        started = time.monotonic()
        columns = (
            TextColumn("  {task.description:<6}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[phases]}"),
            TimeElapsedColumn(),
        )
        self.console.print(f"[bold]{doing}[/]")
        with Progress(*columns, console=self.console) as progress:
            bars = {
                account_id: progress.add_task(account_id, total=size, phases="")
                for account_id, size in sizes.items()
            }
            yield _painter(progress, bars)
        self.console.print(f"[green]✓[/] over [dim]after {time.monotonic() - started:.1f} s[/]")

    def tables(self, story: Story) -> None:
        """One row per execution."""
        for title, rows in tables(story).items():
            table = Table(
                title=title,
                title_justify="left",
                title_style="bold",
                box=None,
                padding=(0, 1, 0, 0),
            )
            for column, heading in enumerate(HEADINGS):
                table.add_column(heading, justify="left" if column < 2 else "right", no_wrap=True)  # noqa: PLR2004 the first two are words
            for row in rows:
                table.add_row(*map(_shown, row.cells), style="red" if row.bad else None)
            self.console.print()
            self.console.print(table)

    def checks(self, judged: Mapping[str, Sequence[Check]]) -> None:
        """Every claim with the facts behind it."""
        for title, checks in judged.items():
            self.console.print(f"\n[bold]{_shown(title)}[/]")
            for check in checks:
                mark = "[green]✓[/]" if check.passed else "[bold red]✗ FAILED:[/]"
                line = f"{mark} {_shown(check.claim)}: [dim]{_shown(check.evidence)}[/]"
                self.console.print(line, soft_wrap=True)

    def bill(self, story: Story) -> None:
        """What an execution costs its owner, the runs side by side."""
        table = Table(
            title="Side by side, counted in the histories",
            title_justify="left",
            title_style="bold",
            box=None,
            padding=(0, 1, 0, 0),
        )
        table.add_column()
        for run in story.runs:
            table.add_column(run.mode, justify="right", no_wrap=True)
        for line, cells in side_by_side(story.runs).items():
            table.add_row(line, *map(_shown, cells))
        self.console.print()
        self.console.print(table)

    def paths(self, paths: Sequence[Path]) -> None:
        """Where the picture and the page are."""
        self.console.print("\n[bold]Look at it[/]")
        for path in paths:
            self.console.print(path.resolve().as_uri(), soft_wrap=True)


def _shown(text: str) -> str:
    """Text of others, without what the terminal would obey and what rich takes for markup."""
    return escape(printable(text))


def _painter(progress: Progress, bars: Mapping[str, TaskID]) -> Watcher:
    def paint(executions: Sequence[Execution]) -> None:
        for account_id, bar in bars.items():
            phases = Counter(phase(e) for e in executions if e.account_id == account_id)
            words = [f"{count} {name}" for name, count in sorted(phases.items())]
            progress.update(bar, completed=phases["done"], phases=", ".join(words))

    return paint


def phase(execution: Execution) -> str:
    """One word for where an execution is."""
    if execution.status != "RUNNING":
        return "done"
    calls: Callable[[Role], Sequence[object]] = execution.calls_of
    return "inside" if calls(Role.CHARGE) or execution.grant else "waiting"
