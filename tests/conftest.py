"""Settings of all tests."""

from hypothesis import settings

# A kernel compiles at its first call, and machines are shared: no test looks at the clock.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
