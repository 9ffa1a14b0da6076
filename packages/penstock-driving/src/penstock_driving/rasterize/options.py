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
    """Differences from L5Kit's rasters. Each default is as in L5Kit.

    Args:
        fill: Overlapping boxes of one channel: `"even-odd"` leaves a hole (the default), `"union"` does not.
        history_step: Draw each `history_step`-th step of the history, 1 or more. The default is 1.
        agent_channels: More channels of the current frame after the boxes: `"type"`, `"velocity"`. The default is none.
        lane_color: Roads in one colour (`"type"`, the default), or coloured by their direction in the raster
            (`"direction"`).
        light_rule: Active face that colours the lines of a lane: the `"last"` in the order of the map (the default), or
            the `"strictest"`.
        outside: Views beyond the aerial image: an `"error"` (the default), or black there (`"pad"`).
        colors: Other colours, RGB in 0 to 255, for any of background, road, lane, crosswalk, red, yellow and green. The
            default is none.

    Raises:
        DataError: A value is unknown or out of range.

    Example:
        >>> RasterOptions(fill="union").fill
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
        """Read options from a mapping of a configuration.

        Args:
            values: Options by name.

        Raises:
            DataError: A name is no option, or a value is unknown.
        """
        names = [option.name for option in fields(cls)]
        for name in values:
            _one_of("options", name, tuple(names))
        return cls(**values)

    def color(self, name: str) -> Color:
        """Return a colour, RGB in 0 to 255.

        Args:
            name: One of background, road, lane, crosswalk, red, yellow and green.
        """
        red, green, blue = self.colors.get(name, COLORS[name])
        return red, green, blue


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise DataError(f"expected one of {', '.join(known)} in {name}, got {value!r}")
