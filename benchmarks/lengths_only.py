"""`LengthsOnly`: a dataset of which only the lengths of the episodes are known, for plans of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.formats.base.source import Source


class LengthsOnly(Source):
    """A source without values.

    Args:
        fields: The columns.
        offsets: First step of each episode, and the end; or an `.npy` file of them, which is mapped. Another process
            gets the name of the file.
    """

    def __init__(self, fields: Mapping[str, Field], offsets: IntArray | str) -> None:
        self._arguments = dict(fields), offsets
        self._spec = Spec(dict(fields))
        self._offsets: IntArray = np.asarray(np.load(offsets, mmap_mode="r")) if isinstance(offsets, str) else offsets

    def __reduce__(self) -> tuple[type[LengthsOnly], tuple[Any, ...]]:
        return type(self), self._arguments

    @property
    def spec(self) -> Spec:
        return self._spec

    @property
    def offsets(self) -> IntArray:
        return self._offsets

    @property
    def fingerprint(self) -> str:
        return f"lengths {len(self._offsets)} {self._offsets[-1]}"

    def read_array(self, column: str, selection: Selection, out: AnyArray) -> None:
        raise NotImplementedError(f"{column} has no values: {selection.shape} {out.shape}")
