"""The fixtures of `fairlock.testing`: a lock client without AWS, and a clock that tests move."""

pytest_plugins = ["fairlock.testing.plugin"]
