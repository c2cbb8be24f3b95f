"""The guard's machines and the lock's requests, on engines that are not the embedded AWS's.

`make second-engine` runs the same tests on both and compares; docs/second-engine.md says what for.
"""
