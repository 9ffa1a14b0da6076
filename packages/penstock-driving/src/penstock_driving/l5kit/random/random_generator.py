"""Generators of random arrays, called for one at a time; of three numbers each they are offsets of perturbations.

Called, each gives what the original's gives. In a dataset, Gaussian and uniform offsets follow from the seed and the
position in the order instead, so that threads and resumed runs draw the same; others are called once a moved sample.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, FloatArray
from penstock.errors import DataError
from penstock_driving.perturbation import Gaussian, Offsets, Uniform

_LOCK = threading.Lock()  # generators keep state, and loaders have threads


class RandomGenerator(Offsets):
    """Callable that returns a random array. Subclasses define `_sample`."""

    @abstractmethod
    def _sample(self) -> AnyArray:
        """Return the next array."""

    def __call__(self) -> AnyArray:
        return self._sample()

    def draw(self, uniform: FloatArray) -> FloatArray:
        """Return `[n, 3]` offsets from `n` calls."""
        with _LOCK:
            drawn = [_three(self()) for _ in range(len(uniform))]
        return np.array(drawn).reshape(-1, 3)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({values})"


class LambdaRandomGenerator(RandomGenerator):
    """Generator that calls a function without arguments."""

    def __init__(self, sampling_function: Callable[[], AnyArray]) -> None:
        self.sampling_function = sampling_function

    def _sample(self) -> AnyArray:
        return self.sampling_function()

    def __repr__(self) -> str:
        function = self.sampling_function
        name = f"{function.__module__}.{function.__qualname__}" if hasattr(function, "__qualname__") else repr(function)
        return f"LambdaRandomGenerator({name})"


class ReplayRandomGenerator(RandomGenerator):
    """Generator that returns the rows of `values` `[n, ...]` in order."""

    def __init__(self, values: AnyArray) -> None:
        self._values, self._next = np.asarray(values), 0

    def _sample(self) -> AnyArray:
        if self._next == len(self._values):
            raise IndexError(f"expected at most {self._next} calls, the number of values, got one more")
        self._next += 1
        return np.array(self._values[self._next - 1])

    def __repr__(self) -> str:
        return f"ReplayRandomGenerator({self._values.tolist()})"


class GaussianRandomGenerator(RandomGenerator):
    """Normal numbers, drawn by NumPy's generator of `random_seed`; None is another seed each time."""

    def __init__(self, mean: npt.ArrayLike, std: npt.ArrayLike, random_seed: int | None = 0) -> None:
        self.mean, self.std = np.array(mean), np.array(std)
        self.random_seed = np.random.SeedSequence().generate_state(1)[0].item() if random_seed is None else random_seed
        self._rng = np.random.default_rng(self.random_seed)

    @property
    def rng(self) -> np.random.Generator:
        """The NumPy generator of the calls."""
        return self._rng

    def _sample(self) -> FloatArray:
        return np.asarray(self._rng.normal(self.mean, self.std))

    def draw(self, uniform: FloatArray) -> FloatArray:
        """Return `[n, 3]` offsets, each from one row of `uniform`."""
        return Gaussian(_three(self.mean), _three(self.std)).draw(uniform)


class UniformRandomGenerator(RandomGenerator):
    """Numbers between `low` and `high`, drawn by NumPy's global generator."""

    def __init__(self, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        self.low, self.high = low, high

    def _sample(self) -> FloatArray:
        return np.asarray(np.random.uniform(np.asarray(self.low), np.asarray(self.high)))

    def draw(self, uniform: FloatArray) -> FloatArray:
        """Return `[n, 3]` offsets, each from one row of `uniform`."""
        return Uniform(_three(self.low), _three(self.high)).draw(uniform)


def _three(numbers: npt.ArrayLike) -> tuple[float, float, float]:
    triple = np.asarray(numbers, np.float64)
    if triple.shape != (3,):
        raise DataError(f"expected three numbers as an offset (left, ahead, yaw), got {triple.tolist()}")
    left, ahead, yaw = triple.tolist()
    return left, ahead, yaw
