"""The semantic map: lanes, crosswalks and traffic lights out of a protobuf file, read by ourselves."""

from penstock.domains.driving.map.api import InterpolationMethod, MapAPI
from penstock.formats.l5kit.road_map import MapElement, RoadMap

__all__ = ["InterpolationMethod", "MapAPI", "MapElement", "RoadMap"]
