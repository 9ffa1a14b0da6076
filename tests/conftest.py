"""Settings of all tests, and the one server of S3 of a process."""

# pyright: basic

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.locations.s3 import Stores

# A kernel compiles at its first call, and machines are shared: no test looks at the clock. Each run tries the same
# examples, so that a run that passes says that the next one will; `--hypothesis-profile random` tries others.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("penstock", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("penstock")


@pytest.fixture(scope="session")
def stores() -> Iterator[Stores]:
    """One server for all tests: its buckets belong to the process, and clients remember its address."""
    from tests.locations.s3 import serving_s3

    with serving_s3() as stores:
        yield stores
