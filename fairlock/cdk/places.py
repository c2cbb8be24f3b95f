"""Account and region: whether two parts of an app are in the same, as far as synth knows."""

from __future__ import annotations

from aws_cdk import Stack, Token
from aws_cdk.interfaces import ResourceEnvironment


def first_difference(here: Stack, there: ResourceEnvironment) -> tuple[str, str, str] | None:
    """`account` or `region`, that of here, and another one of there; None if nothing differs."""
    for kind, own, other in (
        ("account", here.account, there.account),
        ("region", here.region, there.region),
    ):
        is_known = not Token.is_unresolved(own) and not Token.is_unresolved(other)
        if is_known and own != other:
            return kind, own, other
    return None
