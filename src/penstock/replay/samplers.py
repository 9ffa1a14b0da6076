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
    """Anchors of one draw."""

    anchors: IntArray
    weights: Float32Array | None = None
    masses: Float32Array | None = None
    total: float = 0.0
    priorities: Float32Array | None = None


class Drawing(ABC):
    """The part of a sampler that changes with arrivals and priorities."""

    def __init__(self, key: np.uint64) -> None:
        self.key = key
        self.lo = self.hi = 0  # anchors that can be drawn
        self.highest = 1.0  # weight of new anchors, see `PrioritizedSampler`
        self.labels_of: Callable[[IntArray], IntArray] = np.zeros_like  # strata of anchors, see `StratifiedSampler`

    def arrive(self, lo: int, hi: int) -> None:
        """Note that the store has other anchors now."""
        self.lo, self.hi = lo, hi

    def observe(self, anchor: int, episode: Episode) -> None:
        """Look at an episode that arrived, if samples are whole episodes."""

    @property
    def mass(self) -> float:
        """Sum of the weights of all anchors."""
        return float(self.hi - self.lo)

    @property
    def least(self) -> float:
        """Least probability of an anchor, if there are importance weights."""
        return 0.0

    def importance(self, probability: FloatArray, least: float, number: int) -> Float32Array | None:
        """Return the importance weights of samples of these probabilities, if there are any."""
        return None

    @property
    def dropped(self) -> Mapping[str, int]:
        """Groups that are never drawn, by reason."""
        return {}

    def has(self, n: int) -> bool:
        """Return whether `n` samples can be drawn."""
        return self.hi > self.lo

    def set_version(self, version: int) -> None:
        """Note that the policy has a new version."""
        raise PlanError("expected a replay with sampler=GroupSampler(...), which knows versions of a policy")

    @abstractmethod
    def draw(self, number: int, n: int) -> Drawn:
        """Draw anchors."""

    def draw_within(self, number: int, cost: Callable[[IntArray], int], most: int) -> Drawn:
        """Draw as many anchors as a batch has room for."""
        raise PlanError("expected a replay with sampler=GroupSampler(...), which draws by max_tokens")

    def chances(self, draw: Draw) -> dict[str, FloatArray]:
        """Return what a draw knew of its samples, `[n]` float64 each."""
        return {}

    def update(self, anchors: IntArray, priorities: AnyArray) -> None:
        """Set priorities of anchors."""
        raise PlanError(
            "expected a replay with priorities to update, got one without; give it sampler=PrioritizedSampler(...)"
        )

    def state(self) -> State:
        """Return what a restored run needs in addition to the anchors."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state, for the anchors that `arrive` named."""
        if state:
            raise StateError(f"expected the state of a sampler without priorities, got one with {sorted(state)}")


class ReplaySampler(ABC):
    """How samples are chosen: `UniformSampler`, `RecentSampler`, `StratifiedSampler`, `PrioritizedSampler` or
    `GroupSampler`.
    """

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
    """Return a copy of numbers of samples as `[n]` int64."""
    numbers: AnyArray = np.asarray(samples)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        kind = type(samples).__name__
        raise ArgumentError(f"expected a batch, its ticket or a list of numbers of samples, got {kind}")
    return numbers.astype(np.int64)
