"""The semantic map."""

from __future__ import annotations

from enum import IntEnum

from penstock_driving.map import InterpolationMethod, MapAPI

__all__ = ["CACHE_SIZE", "ENCODING", "InterpolationMethod", "MapAPI", "TLFacesColors"]

CACHE_SIZE = 100_000
"""How many lanes the original keeps; here all are kept."""
ENCODING = "utf-8"
"""Of ids in the file."""


class TLFacesColors(IntEnum):
    """The colours of faces of traffic lights."""

    RED = 0
    GREEN = 1
    YELLOW = 2
