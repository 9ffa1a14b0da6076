"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# A kernel compiles at its first call, and machines are shared: no test looks at the clock. Each run tries the same
# examples, so that a run that passes says that the next one will; `--hypothesis-profile random` tries others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("penstock", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("penstock")
