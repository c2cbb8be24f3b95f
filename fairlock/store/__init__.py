"""The operations of a lock over one table: `LockStore`, and one module for each operation."""
