"""`CheckThresholds`: the numbers that decide when a check reports something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from penstock.errors import ArgumentError, suggestion


@dataclass(frozen=True)
class CheckThresholds:
    """CheckThresholds of the checks of values. The defaults report nothing for the recordings of simulators.

    Args:
        frozen_steps: Fewest equal rows of an observation in a row that count as frozen, while actions change. The
            default is 50.
        stuck_steps: Fewest equal rows of an observation that count as frozen if it then jumps. The default is 10.
        stuck_jump: How many times the median change of the episode such a jump must be. The default is 3.
        picture_noise: Most difference of repeated pictures that a codec makes, in the mean of a block of 16 x 16
            pixels, 0 to 255. The default is 6; 0 compares pictures bit for bit.
        blank_pictures: Fewest pictures of one colour in a row that are reported. The default is 3.
        constant_steps: Fewest steps of an episode whose constant actions are reported. The default is 10.
        clipped_share: Share of action values at a bound of the space, above which an episode is reported, 0 to 1.
            The default is 0.5.
        jump_factor: How many times larger than the median over all episodes the largest change of an action must
            be. The default is 10.
        idle_steps: Fewest idle steps at the start or end of an episode. The default is 20.
        idle_share: Changes below this share of the range of an episode count as none, 0 to 1. The default is 0.001.
        gap_factor: How many times the usual time between two steps a gap must be. The default is 2.5.
        drift_steps: How many steps a clock may run away from the stated rate, or from another clock, in an episode.
            The default is 1.5.
        rate_share: Most relative deviation of the rate of an episode. The default is 0.02.
        return_share: Most relative deviation of a stored return from the sum of rewards. The default is 0.001.
        near_share: Most difference of near duplicates, in standard deviations of a column. The default is 0.001.

    Raises:
        ArgumentError: A threshold is negative.

    Example:
        >>> CheckThresholds(frozen_steps=20).frozen_steps
        20
    """

    frozen_steps: int = 50
    stuck_steps: int = 10
    stuck_jump: float = 3.0
    picture_noise: float = 6.0
    blank_pictures: int = 3
    constant_steps: int = 10
    clipped_share: float = 0.5
    jump_factor: float = 10.0
    idle_steps: int = 20
    idle_share: float = 0.001
    gap_factor: float = 2.5
    drift_steps: float = 1.5
    rate_share: float = 0.02
    return_share: float = 0.001
    near_share: float = 0.001

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
                raise ArgumentError(f"expected {each.name} as a number of at least 0, got {value!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> CheckThresholds:
        """Make thresholds from names and values.

        Args:
            values: Values by name of the threshold; others keep their default.

        Raises:
            ArgumentError: A name is unknown, or a value is no number of at least 0.

        Example:
            >>> CheckThresholds.of({"gap_factor": 4}).gap_factor
            4
        """
        names = [each.name for each in fields(cls)]
        for name in values:
            if name not in names:
                raise ArgumentError(f"no threshold {name!r}{suggestion(name, names)}; there are {names}")
        return cls(**values)
