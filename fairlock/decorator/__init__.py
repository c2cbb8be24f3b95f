"""`@locked`: a function that runs only while it holds a lock. Import it from `fairlock`."""
