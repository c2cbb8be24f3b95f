"""`LockGuard`: a fragment that runs a part of a workflow while it holds a lock."""
