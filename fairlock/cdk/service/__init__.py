"""`LockService`: the lock table, the functions over it, and the reaper."""
