"""The CDK app: `Fairlock`, and with `-c demo=true` also the demo's two stacks."""

from __future__ import annotations

from aws_cdk import App

from infra.lock_stack import LockStack
from infra.settings import Settings


def build(app: App) -> LockStack:
    """Declares the stacks. They name no account and no region: credentials decide at deployment."""
    settings = Settings.from_context(app.node)
    lock_stack = LockStack(app, "Fairlock", settings=settings)
    if settings.demo:
        from infra.demo_durable import DemoDurable  # noqa: PLC0415 - only the demo needs these
        from infra.demo_stack import DemoStack  # noqa: PLC0415 - same

        demo = DemoStack(app, "FairlockDemo", locks=lock_stack.locks)
        DemoDurable(app, "FairlockDemoDurable", locks=lock_stack.locks, accounts=demo.accounts)
    return lock_stack


if __name__ == "__main__":
    app = App()
    build(app)
    app.synth()
