"""Storage spaces of the values of a space, including custom spaces."""

from __future__ import annotations

import copy
import string
from typing import Any

import gymnasium
import numpy as np

from penstock.core import spaces
from penstock.core.space_columns import widest_box
from penstock.errors import SpecError
from penstock.recording.spaces import from_gymnasium

_ANY_LENGTH = 2**31 - 1


def stored_space(space: gymnasium.Space[Any]) -> spaces.Space:
    """Return the standard's space for the columns of `space`. For a custom space it follows from its samples."""
    inner: Any = getattr(space, "spaces", None)  # its type there says nothing about the spaces below
    if isinstance(space, gymnasium.spaces.Dict):
        return spaces.Dict({key: stored_space(part) for key, part in inner.items()})
    if isinstance(space, gymnasium.spaces.Tuple):
        return spaces.Tuple(tuple(stored_space(part) for part in inner))
    try:
        return from_gymnasium(space)
    except SpecError:
        return _of_sample(space)


def _of_sample(space: gymnasium.Space[Any]) -> spaces.Space:
    sample = copy.deepcopy(space).sample()  # a copy, whose generator may move
    if isinstance(sample, str):
        return spaces.Text(_ANY_LENGTH, 0, string.printable)
    if not isinstance(sample, (np.ndarray, np.generic, int, float)):
        raise SpecError(f"expected a space of the standard, of text, or of arrays of one shape, got {space}")
    value = np.asarray(sample)
    return widest_box(value.shape, value.dtype)
