"""Property tests try the same examples in each run, so that a red one stays red."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci",
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")
