"""What samples contain: sections of l5kit's configuration, and `Sampling`, the checked numbers of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.core.narrowing import is_mapping
from penstock.errors import DataError, closest
from penstock_driving.geometry import vertical_flip

Velocities = Literal["original", "masked"]

_ALIKE = 0.85  # of two names, as `closest` measures: above it one is taken for the other, misspelt


@dataclass(frozen=True)
class Sampling:
    """Contents of samples: how many frames, and the geometry of rasters.

    Args:
        history: Frames before the current one, 0 or more. The default is 10.
        future: Frames after the current one, 0 or more. The default is 50.
        step_time: Seconds from a frame to the next, above 0. The default is 0.1.
        threshold: An agent takes part in traffic if its labels of interest have a probability above this. The default
            is 0.5.
        raster_size: Width and height of rasters in pixels. The default is `(224, 224)`.
        pixel_size: Metres of a pixel along x and y. The default is `(0.5, 0.5)`.
        ego_center: Place of the subject in the raster, as a share of each side. The default is `(0.25, 0.5)`.
        origin_at_bottom: Whether y points up in rasters. The default is True.
        velocities: `"original"` (the default) is l5kit's: a missing position counts as 0, so a track that ends seems to
            jump. `"masked"` is 0 m/s if one of the two frames of a difference is missing.

    Raises:
        DataError: A value is out of range or unknown.

    Example:
        >>> Sampling(history=2, future=3).steps
        (3, 3)
    """

    history: int = 10
    future: int = 50
    step_time: float = 0.1
    threshold: float = 0.5
    raster_size: tuple[int, int] = (224, 224)
    pixel_size: tuple[float, float] = (0.5, 0.5)
    ego_center: tuple[float, float] = (0.25, 0.5)
    origin_at_bottom: bool = True
    velocities: Velocities = "original"

    def __post_init__(self) -> None:
        if self.history < 0 or self.future < 0:
            raise DataError(f"expected history and future of 0 frames or more, got {self.history} and {self.future}")
        if not self.step_time > np.finfo(float).eps or min(self.pixel_size) <= 0 or min(self.raster_size) < 1:
            raise DataError(f"expected a step, pixels and a raster of more than 0, got {self}")
        if self.velocities not in ("original", "masked"):
            raise DataError(f"expected velocities 'original' or 'masked', got {self.velocities!r}")

    @classmethod
    def of(cls, config: Mapping[str, Any], velocities: Velocities = "original") -> Sampling:
        """Read the contents of samples from a configuration of l5kit.

        Args:
            config: Configuration with `model_params` and `raster_params`.
            velocities: `"original"` (the default) or `"masked"`.

        Raises:
            DataError: An entry is missing (the error names it), or a value is out of range.
        """
        model, raster = section(config, "model_params"), section(config, "raster_params")
        return cls(
            int(model["history_num_frames"]),
            int(model["future_num_frames"]),
            float(model["step_time"]),
            float(raster["filter_agents_threshold"]),
            (int(raster["raster_size"][0]), int(raster["raster_size"][1])),
            (float(raster["pixel_size"][0]), float(raster["pixel_size"][1])),
            (float(raster["ego_center"][0]), float(raster["ego_center"][1])),
            bool(raster["set_origin_to_bottom"]),
            velocities,
        )

    @property
    def steps(self) -> tuple[int, int]:
        """Rows of history, including the current frame, and rows of future."""
        return self.history + 1, self.future

    def raster_from_agent(self) -> FloatArray:
        """Return the matrix `[3, 3]` float64 that maps metres around the subject to pixels."""
        matrix = np.diag([1 / self.pixel_size[0], 1 / self.pixel_size[1], 1.0])
        matrix[:2, 2] = np.array(self.ego_center) * self.raster_size
        return vertical_flip(matrix, self.raster_size[1]) if self.origin_at_bottom else matrix


class ConfigSection(dict[str, Any]):
    """A section of a configuration. A missing key is an error with its full name."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.name = name

    def __missing__(self, key: str) -> Any:
        raise DataError(f"expected {self.name}.{key} in the configuration, got {sorted(self)}")


OPTIONAL = {"raster_params": ("map_type", "disable_traffic_light_faces", "options")}
"""The keys that a configuration may leave out; their names are checked, for a misspelt one would be ignored."""


def section(config: Mapping[str, Any], name: str) -> ConfigSection:
    """Return a section of a configuration."""
    values = config.get(name)
    if not is_mapping(values):
        raise DataError(f"expected a section {name} in the configuration, got {sorted(config)}")
    for key in OPTIONAL.get(name, ()):
        similar = closest(key, map(str, values), _ALIKE)
        if similar is not None and key not in values:
            raise DataError(f"unknown key {name}.{similar} in the configuration; did you mean {key!r}?")
    return ConfigSection(name, values)
