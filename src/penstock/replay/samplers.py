"""How a replay chooses samples: the base of all samplers, `UniformSampler` and `RecentSampler`.

A sampler is a frozen description; `start` makes the part that changes. A draw is a function of the key, the number of
the draw, and the arrivals and priorities before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.core.arrays import AnyArray, Float32Array, FloatArray, IntArray
from penstock.core.episode import Episode
from penstock.errors import ArgumentError, PlanError, StateError
from penstock.kernels.replay import recent_anchors, uniform_anchors
from penstock.replay.draw import Draw

State = dict[str, Any]


class Drawn(NamedTuple):
    """Anchors of one draw.

    Args:
        anchors: `[n]` int64 anchors.
        weights: `[n]` float32 importance weights, or None.
        masses: `[n]` float32 weights in proportion to which anchors were drawn, or None.
        total: Sum of the weights of all anchors.
        priorities: `[n]` float32 priorities at the draw, if the weights do not tell them, or None.
    """

    anchors: IntArray
    weights: Float32Array | None = None
    masses: Float32Array | None = None
    total: float = 0.0
    priorities: Float32Array | None = None


class Drawing(ABC):
    """The part of a sampler that changes with arrivals and priorities.

    Args:
        key: Key of the random bits.
    """

    def __init__(self, key: np.uint64) -> None:
        self.key = key
        self.lo = self.hi = 0  # anchors that can be drawn

    def arrive(self, lo: int, hi: int) -> None:
        """Note that the store has other anchors now.

        Args:
            lo: Oldest anchor.
            hi: Anchor after the newest.
        """
        self.lo, self.hi = lo, hi

    def observe(self, anchor: int, episode: Episode) -> None:
        """Look at an episode that arrived, if samples are whole episodes.

        Args:
            anchor: Number of its sample.
            episode: The episode.
        """

    @property
    def dropped(self) -> Mapping[str, int]:
        """Groups that are never drawn, by reason."""
        return {}

    def has(self, n: int) -> bool:
        """Return whether `n` samples can be drawn.

        Args:
            n: Number of samples.
        """
        return self.hi > self.lo

    def set_version(self, version: int) -> None:
        """Note that the policy has a new version.

        Args:
            version: Version of the policy.

        Raises:
            PlanError: The sampler has no limit on staleness, or the version is lower than the last one.
        """
        raise PlanError("expected a replay with sampler=GroupSampler(...), which knows versions of a policy")

    @abstractmethod
    def draw(self, number: int, n: int) -> Drawn:
        """Draw anchors.

        Args:
            number: Number of the first draw.
            n: Number of draws, at least 1.
        """

    def draw_within(self, number: int, cost: Callable[[IntArray], int], most: int) -> Drawn:
        """Draw as many anchors as a batch has room for.

        Args:
            number: Number of the first draw.
            cost: Returns the tokens of a batch from the lengths of its episodes.
            most: Most tokens.

        Raises:
            PlanError: The sampler does not draw by tokens, or nothing fits.
        """
        raise PlanError("expected a replay with sampler=GroupSampler(...), which draws by max_tokens")

    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        """Return what a draw knew of its samples, `[n]` float64 each.

        Args:
            draw: A draw of this run.

        Returns:
            `probability` of each sample in one draw, and `priority` if samples have priorities. Empty if draws have no
            probabilities.
        """
        return {}

    def update(self, anchors: IntArray, priorities: AnyArray) -> None:
        """Set priorities of anchors.

        Args:
            anchors: `[n]` int64 anchors in the store.
            priorities: `[n]` floats, finite, 0 or more.

        Raises:
            PlanError: The sampler has no priorities.
        """
        raise PlanError(
            "expected a replay with priorities to update, got one without; give it sampler=PrioritizedSampler(...)"
        )

    def state(self) -> State:
        """Return what a restored run needs in addition to the anchors."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, for the anchors that `arrive` named.

        Args:
            state: Output of `state`.

        Raises:
            StateError: The state belongs to another sampler or other anchors.
        """
        if state:
            raise StateError(f"expected the state of a sampler without priorities, got one with {sorted(state)}")


class ReplaySampler(ABC):
    """How samples are chosen: `UniformSampler`, `RecentSampler`, `PrioritizedSampler` or `GroupSampler`."""

    @abstractmethod
    def start(self, key: np.uint64) -> Drawing:
        """Return the drawing of an empty store.

        Args:
            key: Key of the random bits.
        """


@dataclass(frozen=True)
class UniformSampler(ReplaySampler):
    """All samples in the store are equally likely, with replacement.

    Example:
        >>> import numpy as np, penstock
        >>> replay = penstock.Replay(None, 100, sampler=UniformSampler(), seed=1)
        >>> replay.write(penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[5])[0])
        0
        >>> sorted(set(replay.sample(64)["rewards"].tolist()))
        [0.0, 1.0, 2.0, 3.0, 4.0]
    """

    def start(self, key: np.uint64) -> Drawing:
        """Return the drawing of an empty store."""
        return _UniformDrawing(key)


class _UniformDrawing(Drawing):
    def draw(self, number: int, n: int) -> Drawn:
        return Drawn(uniform_anchors(self.key, number, self.lo, self.hi, n))

    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        lo, hi = draw.extent
        return {"probability": np.full(len(draw.anchors), 1 / (hi - lo) if hi > lo else np.nan)}


@dataclass(frozen=True)
class RecentSampler(ReplaySampler):
    """Newer samples are more likely: a sample that is `half_life` samples older is half as likely.

    Args:
        half_life: Number of samples, above 0.

    Raises:
        PlanError: `half_life` is not above 0.

    Example:
        >>> import numpy as np, penstock
        >>> replay = penstock.Replay(None, 1000, sampler=RecentSampler(half_life=10))
        >>> replay.write(penstock.from_arrays({"rewards": np.arange(900.0)}, lengths=[900])[0])
        0
        >>> bool(replay.sample(64)["rewards"].min() > 700)
        True
    """

    half_life: float

    def __post_init__(self) -> None:
        if not self.half_life > 0:
            raise PlanError(f"expected a half_life above 0 samples, got {self.half_life}")

    def start(self, key: np.uint64) -> Drawing:
        """Return the drawing of an empty store."""
        return _RecentDrawing(key, float(self.half_life))


class _RecentDrawing(Drawing):
    def __init__(self, key: np.uint64, half_life: float) -> None:
        super().__init__(key)
        self._half_life = half_life

    def draw(self, number: int, n: int) -> Drawn:
        return Drawn(recent_anchors(self.key, number, self.lo, self.hi, self._half_life, n))

    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        lo, hi = draw.extent
        fade = 1 / self._half_life
        whole = -np.expm1(-np.log(2) * (hi - lo) * fade) if hi > lo else np.nan
        return {"probability": 2.0 ** (-(hi - 1 - draw.anchors) * fade) * -np.expm1(-np.log(2) * fade) / whole}


def numbers_of(samples: Any) -> IntArray:
    """Return a copy of numbers of samples as `[n]` int64.

    Args:
        samples: `[n]` integers.

    Raises:
        ArgumentError: They are no list of integers.

    Example:
        >>> numbers_of([3, 1]).tolist()
        [3, 1]
    """
    numbers: AnyArray = np.asarray(samples)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        kind = type(samples).__name__
        raise ArgumentError(f"expected a batch, its ticket or a list of numbers of samples, got {kind}")
    return numbers.astype(np.int64)
