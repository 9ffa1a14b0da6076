"""The semantic map: lanes, crosswalks and traffic lights out of a protobuf file, read by ourselves."""

from penstock_driving.formats.l5kit.road_map import MapElement, RoadMap
from penstock_driving.map.api import InterpolationMethod, MapAPI

__all__ = ["InterpolationMethod", "MapAPI", "MapElement", "RoadMap"]
