"""`python -m examples.demo`: deploy, contend, judge, draw. Exit status 1 if a check fails.

With KEEP=1 in the environment the embedded AWS stays up until Ctrl-C.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from examples.demo import durable_act, readers_act, scenario, shell_lines
from examples.demo.console import Narrator
from examples.demo.facts import Limits, Mode, Run, Story
from examples.demo.lanes import picture
from examples.demo.page import page
from examples.demo.runner import DemoFailed, Deployed, Runner
from examples.demo.verdict import all_checks
from testbed.localaws import LocalAws, LocalAwsError

OUTPUT = Path("out") / "demo"
INTERRUPTED = 130
CONTESTS = (
    (Mode.BARE, "Without the guard", "12 workflows charge 3 accounts, without the guard"),
    (Mode.POLLING, "Guard that polls", "The same 12, in a guard that polls"),
    (
        Mode.QUEUE,
        "Guard with a queue",
        "The same 12, in a guard with a queue, which is the default",
    ),
)


def main() -> int:
    """Run the demo; the exit status."""
    narrator = Narrator()
    try:
        with LocalAws() as aws:
            return _demo(aws, narrator, keep_running=os.environ.get("KEEP", "") not in {"", "0"})
    except KeyboardInterrupt:
        narrator.console.print("\nInterrupted; everything that was started has ended.")
        return INTERRUPTED
    except (DemoFailed, LocalAwsError) as error:
        return _failed(error, narrator)


def _demo(aws: LocalAws, narrator: Narrator, *, keep_running: bool) -> int:
    with narrator.step(f"Bootstrap an embedded AWS on {aws.endpoint_url}"):
        aws.bootstrap()
    with narrator.step("Deploy the lock service and the demo's workflows with the CDK CLI"):
        stacks = ("Fairlock", "FairlockDemo", "FairlockDemoDurable")
        outputs = aws.deploy(stacks=stacks, context={"demo": "true"})
    deployed = Deployed.from_outputs(outputs)
    try:
        failures = _show(aws, deployed, outputs, narrator)
    except DemoFailed as error:
        failures = _failed(error, narrator)
    if keep_running:
        _stay(aws, deployed, narrator)
    return 1 if failures else 0


def _show(
    aws: LocalAws, deployed: Deployed, outputs: Mapping[str, Mapping[str, str]], narrator: Narrator
) -> int:
    """Play and judge all acts; the number of failed checks."""
    steps = aws.client("stepfunctions", max_pool_connections=32)
    runner = Runner(steps, aws.client("dynamodb"), deployed)
    story = tell(runner, narrator)
    with narrator.step("Two durable functions and two workflows charge one account, in one queue"):
        function = outputs["FairlockDemoDurable"]["DurableChargeFunctionName"]
        judged = durable_act.play(runner, aws.client("lambda"), function)
    with narrator.step("Programs read an account together, and a workflow writes to it alone"):
        dynamodb = aws.client("dynamodb", max_pool_connections=32)
        read = readers_act.play(runner, dynamodb, steps)
    failures = report(story, narrator)
    narrator.checks({durable_act.TITLE: judged, readers_act.TITLE: read})
    return failures + sum(not check.passed for check in (*judged, *read))


def _failed(error: Exception, narrator: Narrator) -> int:
    narrator.console.print(f"[bold red]The demo failed:[/] {error}")
    return 1


def tell(runner: Runner, narrator: Narrator) -> Story:
    """Run the acts and record them."""
    with narrator.step("Rehearse, so that no act waits for a cold start"):
        scenario.rehearse(runner)
    unguarded, polling, queue = (
        _contest(runner, narrator, mode, title, doing) for mode, title, doing in CONTESTS
    )
    with narrator.contest("A task fails while another workflow waits", {"dave": 2}) as watcher:
        failed = scenario.fail_one(runner, watcher)
    with narrator.contest(
        "A workflow is stopped in the middle of its work while another waits", {"erin": 2}
    ) as watcher:
        stopped = scenario.stop_one(runner, watcher)
    return Story(
        unguarded=unguarded,
        polling=polling,
        queue=queue,
        failed=failed,
        stopped=stopped,
        limits=Limits(
            lease_seconds=runner.deployed.lease_seconds,
            clock_tolerance_seconds=scenario.CLOCK_TOLERANCE_SECONDS,
            fallback_seconds=runner.deployed.fallback_seconds,
        ),
    )


def _contest(runner: Runner, narrator: Narrator, mode: Mode, title: str, doing: str) -> Run:
    sizes = dict.fromkeys(scenario.ACCOUNTS, scenario.CHARGES_PER_ACCOUNT)
    with narrator.contest(doing, sizes) as watcher:
        return scenario.contend(runner, title=title, mode=mode, watcher=watcher)


def report(story: Story, narrator: Narrator, output: Path = OUTPUT) -> int:
    """Judge and show the story; the number of failed checks."""
    judged = all_checks(story, error=scenario.ERROR)
    with narrator.step("Draw the picture"):
        from examples.demo.draw import draw  # noqa: PLC0415 - matplotlib: two seconds to import

        svg, png = draw(picture(story))
        output.mkdir(parents=True, exist_ok=True)
        html = page(story, judged, svg, finished_at=datetime.now(UTC))
        (output / "index.html").write_text(html, encoding="utf-8")
        (output / "picture.svg").write_text(svg, encoding="utf-8")
        (output / "picture.png").write_bytes(png)
    narrator.tables(story)
    narrator.bill(story)
    narrator.checks(judged)
    narrator.paths([output / name for name in ("index.html", "picture.svg", "picture.png")])
    return sum(not check.passed for checks in judged.values() for check in checks)


def _stay(aws: LocalAws, deployed: Deployed, narrator: Narrator) -> None:
    narrator.console.print("\n[bold]The embedded AWS is still there. To paste elsewhere:[/]\n")
    # Not through rich: a wrapped or highlighted line cannot be pasted.
    print(shell_lines.lines(deployed, aws.endpoint_url, aws.environment), flush=True)  # noqa: T201
    narrator.console.print("\nCtrl-C stops it and everything in it.")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    narrator.console.print("\nStopping it.")


if __name__ == "__main__":
    sys.exit(main())
