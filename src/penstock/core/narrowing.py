"""Checks of a type that keep what a container holds usable for a type checker.

After `isinstance(value, dict)` a checker knows `dict[Unknown, Unknown]`, and all that is taken out of it is unknown as
well. These checks answer the same question at run time and say `dict[Any, Any]`. They are for values that came from
outside, such as parsed JSON, pickles and the observations of environments.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.arrays import AnyArray

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def is_array(value: object) -> TypeIs[AnyArray]:
    """Whether it is a NumPy array."""
    return isinstance(value, np.ndarray)


def is_dtype(value: object) -> TypeIs[np.dtype[Any]]:
    """Whether it is a dtype of NumPy."""
    return isinstance(value, np.dtype)


def is_generator(value: object) -> TypeIs[Generator[Any, Any, Any]]:
    return isinstance(value, GeneratorType)


def is_dict(value: object) -> TypeIs[dict[Any, Any]]:
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeIs[Mapping[Any, Any]]:
    """Whether it is a mapping, a dict or another."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeIs[list[Any]]:
    return isinstance(value, list)


def is_tuple(value: object) -> TypeIs[tuple[Any, ...]]:
    return isinstance(value, tuple)


def is_listed(value: object) -> TypeIs[list[Any] | tuple[Any, ...]]:
    return isinstance(value, list | tuple)


def is_integer(value: object) -> TypeIs[int | np.integer[Any]]:
    """Whether it is an integer of Python (a bool as well) or of NumPy."""
    return isinstance(value, int | np.integer)


def is_path(value: object) -> TypeIs[str | os.PathLike[str]]:
    return isinstance(value, str | os.PathLike)


def is_scalar(value: object) -> TypeIs[np.generic[Any]]:
    """Whether it is a scalar of NumPy."""
    return isinstance(value, np.generic)
