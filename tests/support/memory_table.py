"""The table in memory that `leasehold.testing` gives to users, for our own tests."""

from leasehold.testing.memory_table import (
    ConditionalCheckFailedException,
    Key,
    MemoryTable,
    TransactionCanceledException,
)

__all__ = [
    "ConditionalCheckFailedException",
    "Key",
    "MemoryTable",
    "TransactionCanceledException",
]
