"""The interpreter of expressions of `leasehold.testing`, for tests of single expressions."""

from leasehold.testing.expressions import (
    InvalidExpression,
    Item,
    Scope,
    changed,
    holds,
    placeholders,
)

__all__ = ["InvalidExpression", "Item", "Scope", "changed", "holds", "placeholders"]
