"""The switches of rasterisers. Left alone, rasters equal L5Kit's, pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

from penstock.core.frozen import set_fields
from penstock.errors import DataError

Color = tuple[int, int, int]
COLORS: dict[str, Color] = {
    "background": (255, 255, 255),
    "road": (17, 17, 31),
    "lane": (255, 217, 82),
    "crosswalk": (255, 117, 69),
    "red": (255, 0, 0),
    "yellow": (255, 255, 0),
    "green": (0, 255, 0),
}


@dataclass(frozen=True)
class RasterOptions:
    """What to do otherwise than L5Kit. Every default is what L5Kit does.

    * `fill`: where boxes of one channel overlap, `even-odd` leaves a hole, `union` does not.
    * `history_step`: draw every so manyth step of the history only.
    * `agent_channels`: more channels behind the boxes, of the current frame: `type`, `velocity`.
    * `lane_color`: roads in one colour (`type`), or coloured by their direction in the raster (`direction`).
    * `light_rule`: which active face colours a lane's lines: the `last` in the map's order, or the `strictest`.
    * `outside`: views beyond the aerial image: an `error`, or black there (`pad`).
    * `colors`: other colours (RGB, 0..255) for any of background, road, lane, crosswalk, red, yellow, green.

    Raises `DataError` for unknown values.

    >>> RasterOptions.of({"fill": "union"}).fill
    'union'
    """

    fill: Literal["even-odd", "union"] = "even-odd"
    history_step: int = 1
    agent_channels: tuple[Literal["type", "velocity"], ...] = ()
    lane_color: Literal["type", "direction"] = "type"
    light_rule: Literal["last", "strictest"] = "last"
    outside: Literal["error", "pad"] = "error"
    colors: Mapping[str, Color] = field(default_factory=dict[str, Color])

    def __post_init__(self) -> None:
        hints = get_type_hints(RasterOptions)
        for name in ("fill", "lane_color", "light_rule", "outside"):
            _one_of(name, getattr(self, name), get_args(hints[name]))
        set_fields(self, agent_channels=tuple(self.agent_channels))
        for channel in self.agent_channels:
            _one_of("agent_channels", channel, ("type", "velocity"))
        if self.history_step != int(self.history_step) or self.history_step < 1:
            raise DataError(f"expected history_step as a number from 1 on, got {self.history_step!r}")
        for name, color in self.colors.items():
            _one_of("colors", name, tuple(COLORS))
            if len(color) != 3 or not all(0 <= part <= 255 for part in color):
                raise DataError(f"expected the colour {name} as three numbers in 0..255, got {color!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RasterOptions:
        """From a configuration's mapping. Raises `DataError` for a name that is no option."""
        names = [option.name for option in fields(cls)]
        for name in values:
            _one_of("options", name, tuple(names))
        return cls(**values)

    def color(self, name: str) -> Color:
        """The colour of `name`."""
        red, green, blue = self.colors.get(name, COLORS[name])
        return red, green, blue


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise DataError(f"expected one of {', '.join(known)} in {name}, got {value!r}")
