"""The semantic map."""

from penstock.domains.driving.map import InterpolationMethod, MapAPI

__all__ = ["InterpolationMethod", "MapAPI"]
