"""The workflows that are measured: the same task, guarded by the queue and by polling."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aws_cdk import App

from app import build
from fairlock.cdk import Waiting
from testbed.localaws import LocalAws
from tests.e2e.deployment import Deployment
from tests.e2e.guard.stack import Forms, waits

QUEUE = "Queue"
POLL = "Poll"


class _Measured(Forms):
    """One state machine for each way to wait, as guards have it by default."""

    waiting = Waiting.poll()

    def declare(self) -> None:
        self.add(QUEUE, waits, language=None, waiting=Waiting.queue())
        self.add(POLL, waits, language=None)


@contextmanager
def deployed() -> Iterator[Deployment]:
    """The lock service and the workflows in an AWS of their own."""
    with tempfile.TemporaryDirectory() as assembly, LocalAws() as aws:
        app = App(outdir=assembly)
        _Measured(app, "Measured", locks=build(app).locks)
        app.synth()
        aws.bootstrap()
        outputs = aws.deploy(app=Path(assembly), stacks=("Fairlock", "Measured"))
        yield Deployment(aws=aws, outputs=outputs)
